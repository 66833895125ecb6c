# The project's images:
#
#   allinone    only bin/allinone, without a shell and libraries; for clusters
#   component   bin/allinone and bin/kube; for docker-compose.yaml
#   toolbox     the same programs with a shell; for users
#   machines    the same programs with the components of real nodes
#
# Build arguments can replace the base images. By default the build compiles the programs, which
# takes about ten minutes for bin/kube on two cores. The build can also take the programs from bin/,
# the output of `make build`:
#
#   docker build --build-arg BINARIES=prebuilt --target allinone --tag allinone .
#
# Only BuildKit skips the stages that a target does not need. Docker uses BuildKit since
# version 23, and earlier versions with DOCKER_BUILDKIT=1.
ARG GO_IMAGE=golang:1.26-bookworm
ARG BASE_IMAGE=debian:bookworm-slim
ARG BINARIES=source

FROM ${GO_IMAGE} AS source
ARG GOPROXY
ENV GOFLAGS=-buildvcs=false CGO_ENABLED=0
WORKDIR /src
COPY Makefile ./
COPY hack hack

FROM source AS source-kube
COPY kube kube
RUN make kube

FROM source AS source-allinone
COPY . .
RUN make allinone

# `make machine` needs all sources, and libseccomp for runc, which contains C code.
FROM source-allinone AS source-machines
RUN apt-get update -q && apt-get install -qy --no-install-recommends libseccomp-dev pkg-config
RUN make machine csi

FROM scratch AS prebuilt-machines
COPY bin/allinone-credprovider /src/bin/
COPY bin/machine /src/bin/machine
COPY bin/csi /src/bin/csi

FROM scratch AS prebuilt-kube
COPY bin/kube /src/bin/

FROM scratch AS prebuilt-allinone
COPY bin/allinone /src/bin/

FROM ${BINARIES}-kube AS kube
FROM ${BINARIES}-allinone AS binary
FROM ${BINARIES}-machines AS made

# Files besides the programs: a user and the mount points of volumes. A new volume gets the owner of
# the folder on which Docker mounts the volume.
FROM ${BASE_IMAGE} AS folders
RUN set -e; mkdir -p /out/etc /out/usr/local/bin /out/data /out/run/proxy /out/run/proxy-admin /out/run/csi; \
    for s in init seed cloudsim etcd kube-apiserver kube-controller-manager kube-scheduler ccm proxy-server proxy-agent kwok hypervisor router machines csi csi-sidecars console toolbox; do \
      mkdir -p -m 700 /out/lab/$s; \
    done; \
    for p in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok; do ln -s kube /out/usr/local/bin/$p; done; \
    echo 'cloudsim:x:65532:65532::/tmp:/bin/bash' >/out/etc/passwd; \
    echo 'cloudsim:x:65532:' >/out/etc/group; \
    chmod 700 /out/data /out/run/*; chown -R 65532:65532 /out/lab /out/data /out/run

FROM scratch AS allinone
COPY --from=folders /out/etc /etc
COPY --from=binary /src/bin/allinone /usr/local/bin/
ENV PATH=/usr/local/bin HOME=/tmp
USER 65532:65532
ENTRYPOINT ["allinone"]

FROM scratch AS component
COPY --from=folders /out/ /
COPY --from=binary /src/bin/allinone /usr/local/bin/
COPY --from=kube /src/bin/kube /usr/local/bin/
ENV PATH=/usr/local/bin HOME=/tmp
USER 65532:65532

FROM ${BASE_IMAGE} AS toolbox
RUN command -v curl >/dev/null || \
    { apt-get update -q && apt-get install -qy --no-install-recommends curl && rm -rf /var/lib/apt/lists/*; }
COPY --from=folders /out/usr /usr
COPY --from=folders /out/lab /lab
COPY --from=binary /src/bin/allinone /usr/local/bin/
COPY --from=kube /src/bin/kube /usr/local/bin/
RUN echo 'cloudsim:x:65532:65532::/tmp:/bin/bash' >>/etc/passwd; echo 'cloudsim:x:65532:' >>/etc/group; \
    chown -R 65532:65532 /lab
ENV HOME=/tmp
USER 65532:65532
CMD ["sleep", "infinity"]

FROM ${BASE_IMAGE} AS machines
RUN for tool in nft mkfs.ext4 mkfs.xfs mount; do command -v $tool >/dev/null || missing=1; done; [ -z "$missing" ] || \
    { apt-get update -q && apt-get install -qy --no-install-recommends nftables e2fsprogs xfsprogs mount && rm -rf /var/lib/apt/lists/*; }
COPY --from=folders /out/usr /usr
COPY --from=folders /out/lab /lab
COPY --from=folders /out/run /run
COPY --from=binary /src/bin/allinone /usr/local/bin/
COPY --from=kube /src/bin/kube /usr/local/bin/
COPY --from=made /src/bin/allinone-credprovider /usr/local/bin/
COPY --from=made /src/bin/machine /opt/cloudsim/machine
COPY --from=made /src/bin/csi /opt/cloudsim/csi
RUN ln -s /opt/cloudsim/csi/csi-sidecars /usr/local/bin/; mkdir -p /data /cloud; \
    echo 'cloudsim:x:65532:65532::/tmp:/bin/bash' >>/etc/passwd; chown -R 65532:65532 /lab /cloud
ENV HOME=/tmp
USER 65532:65532
