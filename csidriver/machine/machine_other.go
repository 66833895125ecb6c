//go:build !linux

package machine

import (
	"context"
	"errors"
)

// Loop is a loop device, which exists only on Linux.
type Loop struct{ Number int }

// Usage is the disk usage of a filesystem.
type Usage struct {
	Total, Available, Used       int64
	Inodes, InodesFree, InodesIn int64
}

// canonicalLabel returns a label in the format in which Linux shows it.
func canonicalLabel(label string) string { return sortCategories(label) }

// CanGrowMounted returns false, because the package mounts volumes only on Linux.
func CanGrowMounted() bool { return false }

func (l *Loop) Device() string            { return "" }
func (l *Loop) Close() error              { return errors.ErrUnsupported }
func (l *Loop) Refresh() error            { return errors.ErrUnsupported }
func (l *Loop) Lapse() error              { return errors.ErrUnsupported }
func (l *Loop) Stay() error               { return errors.ErrUnsupported }
func (l *Loop) Lapses() (bool, error)     { return false, errors.ErrUnsupported }
func (l *Loop) Size() (int64, error)      { return 0, errors.ErrUnsupported }
func (l *Loop) IsReadOnly() (bool, error) { return false, errors.ErrUnsupported }
func (l *Loop) Detach() error             { return errors.ErrUnsupported }
func (l *Loop) Guard(bool) error          { return errors.ErrUnsupported }
func (l *Loop) Of() ([]Mount, error)      { return nil, errors.ErrUnsupported }
func (l *Loop) Has(Mount) bool            { return false }

// Attach and the functions below it return ErrUnsupported, because they work
// only on Linux.
func Attach(context.Context, string, bool, bool) (*Loop, error) { return nil, errors.ErrUnsupported }
func Find(string, ...string) (*Loop, error)                     { return nil, errors.ErrUnsupported }
func FindFor(string, string, ...string) (*Loop, error)          { return nil, errors.ErrUnsupported }
func MountDevice(*Loop, string, string, []string) error         { return errors.ErrUnsupported }
func Bind(string, string, []string) error                       { return errors.ErrUnsupported }
func UnmountAll(string) error                                   { return errors.ErrUnsupported }
func At(string) ([]Mount, error)                                { return nil, errors.ErrUnsupported }
func Seen(string) (*Mount, error)                               { return nil, errors.ErrUnsupported }
func UsageOf(string) (Usage, error)                             { return Usage{}, errors.ErrUnsupported }
func Ready() error                                              { return errors.ErrUnsupported }
func Grow(context.Context, *Loop, string, string, int64) error  { return errors.ErrUnsupported }
func FilesystemSize(*Loop, string) (int64, error)               { return 0, errors.ErrUnsupported }
func Replay(context.Context, string, string, string) error      { return errors.ErrUnsupported }
func ReplayUnfinished(context.Context, string) error            { return errors.ErrUnsupported }
func SizeOf(string) (int64, error)                              { return 0, errors.ErrUnsupported }
func GiveToGroup(string, int) error                             { return errors.ErrUnsupported }
func AttachFor(context.Context, string, string, bool, bool) (*Loop, error) {
	return nil, errors.ErrUnsupported
}
func EnsureFilesystem(context.Context, *Loop, string, string) (int64, error) {
	return 0, errors.ErrUnsupported
}
func FileAt(string) (string, error) { return "", errors.ErrUnsupported }
