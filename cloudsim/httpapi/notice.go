package httpapi

import (
	"context"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func (a *api) noticeRoutes() {
	handle(a, op{id: "instances.announce", method: post, path: "/v1/instances/{id}/notices", summary: "Announce maintenance or preemption of an instance. The cloud acts at the announced time", access: engine.Write},
		func(ctx context.Context, in *askInput[cloudsim.CreateNotice]) (*body[cloudsim.Instance], error) {
			v, err := a.engine.AnnounceNotice(ctx, cloudsim.InstanceID(in.ID), in.Body)
			return answer(v, v.Revision, err)
		})
	handle(a, op{id: "instances.withdraw", method: http.MethodDelete, path: "/v1/instances/{id}/notices/{type}", summary: "Withdraw a notice", access: engine.Write},
		func(ctx context.Context, in *struct {
			ByID
			Type string `path:"type" maxLength:"64" doc:"maintenance or preemption"`
		}) (*body[cloudsim.Instance], error) {
			v, err := a.engine.WithdrawNotice(ctx, cloudsim.InstanceID(in.ID), cloudsim.NoticeType(in.Type))
			return answer(v, v.Revision, err)
		})
}
