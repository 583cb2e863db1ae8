# slurmtide, its daemons and the four programs that slurm.conf names, static, for any slurmctld's pod or host.
#   docker build -t slurmtide/slurmtide:dev .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH
WORKDIR /src
# Modules first: they change less often than the code.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags '-s -w' -o /out/ \
	./cmd/slurmtide ./cmd/slurmtide-bridge ./cmd/slurmtide-scaler ./cmd/slurmtide-controller ./cmd/slurmtide-exporter ./cmd/reconfigure ./cmd/resume ./cmd/suspend ./cmd/resume-fail ./cmd/start-gate

FROM gcr.io/distroless/static:nonroot
COPY --from=build /out/ /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/slurmtide"]
