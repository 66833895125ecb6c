package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// AnnounceNotice announces to an instance that the cloud will reboot or terminate the instance, and
// schedules this action. It replaces a notice of the same type. It returns Conflict if the instance
// is terminating.
func (e *Engine) AnnounceNotice(ctx context.Context, id cloudsim.InstanceID, req cloudsim.CreateNotice) (i cloudsim.Instance, err error) {
	if err := req.Validate(); err != nil {
		return i, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if i, err = get(tx, call, instances, string(id)); err != nil {
			return err
		}
		if i.State == cloudsim.InstanceTerminating {
			return cloudsim.Errorf(cloudsim.Conflict, "cannot add a notice to instance %s: it is terminating", id)
		}
		n := cloudsim.Notice{Type: req.Type, At: tx.Now.Add(time.Duration(req.InSeconds) * time.Second), AnnouncedAt: tx.Now}
		removeNotice(&i, req.Type)
		i.Notices = append(i.Notices, n)
		slices.SortStableFunc(i.Notices, func(a, b cloudsim.Notice) int { return a.At.Compare(b.At) })
		if err := instances.Put(tx, &i); err != nil {
			return err
		}
		return tx.Later(n.At, store.Work{Kind: cloudsim.KindInstance, ID: string(id), Verb: n.Type.Verb()})
	})
	return i, err
}

// WithdrawNotice removes a notice. It returns NotFound if the instance has no
// notice of this type.
func (e *Engine) WithdrawNotice(ctx context.Context, id cloudsim.InstanceID, t cloudsim.NoticeType) (i cloudsim.Instance, err error) {
	if err := t.Validate(); err != nil {
		return i, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if i, err = get(tx, call, instances, string(id)); err != nil {
			return err
		}
		if !removeNotice(&i, t) {
			return cloudsim.Errorf(cloudsim.NotFound, "instance %s has no notice of %s", id, t)
		}
		return instances.Put(tx, &i)
	})
	return i, err
}

func removeNotice(i *cloudsim.Instance, t cloudsim.NoticeType) bool {
	n := len(i.Notices)
	i.Notices = slices.DeleteFunc(slices.Clone(i.Notices), func(n cloudsim.Notice) bool { return n.Type == t })
	return len(i.Notices) < n
}

// noticeDue performs the action of a notice. If a caller has withdrawn or postponed the notice,
// noticeDue does nothing. If the instance's state does not permit the action, noticeDue only
// removes the notice. For example, the cloud cannot reboot a stopped instance.
func (e *Engine) noticeDue(tx *store.Tx, w store.Work) error {
	i, err := instances.Get(tx, w.ID)
	if errors.Is(err, cloudsim.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	at := slices.IndexFunc(i.Notices, func(n cloudsim.Notice) bool { return n.Type.Verb() == w.Verb && !n.At.After(tx.Now) })
	if at < 0 {
		return nil
	}
	removeNotice(&i, i.Notices[at].Type)
	if err := i.Move(w.Verb); err != nil {
		return instances.Put(tx, &i)
	}
	takes := e.cfg.Profile.Boot
	if w.Verb == cloudsim.Terminate {
		takes = e.cfg.Profile.Shutdown
	}
	return e.workOnInstance(tx, Call{Caller: cloudCaller}, &i, w.Verb, takes)
}
