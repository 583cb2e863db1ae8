// Command gpuplugin is a kubelet device plugin for GPUs that do not exist.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	gpuResource = "nvidia.com/gpu"
	gpuSocket   = "slurmtide-gpu.sock"
	gpuPoll     = 200 * time.Millisecond
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gpuplugin FILE (FILE holds the number of GPUs)")
		os.Exit(2)
	}
	if err := run(&pretendedGPUs{file: os.Args[1]}); err != nil {
		fmt.Fprintln(os.Stderr, "gpuplugin:", err)
		os.Exit(1)
	}
}

// run advertises as many GPUs as the file says. It reads the file again and
// again, so that the number can be changed while the cluster is up, and
// registers anew when the kubelet restarts.
func run(p *pretendedGPUs) error {
	for {
		n, err := p.count()
		switch {
		case err != nil:
			return err
		case n == 0: // nothing to register: the node shows no such resource at all
			time.Sleep(gpuPoll)
		default:
			if err := p.serve(); err != nil {
				slog.Error("serving pretended GPUs", "error", err)
				time.Sleep(gpuPoll)
			}
		}
	}
}

type pretendedGPUs struct {
	api.UnimplementedDevicePluginServer
	file string
}

func (p *pretendedGPUs) count() (int, error) {
	b, err := os.ReadFile(p.file)
	if err != nil {
		return 0, fmt.Errorf("reading the number of GPUs: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s holds %q: want the number of GPUs", p.file, b)
	}
	return n, nil
}

// serve registers with the kubelet and returns when the kubelet has made a new socket.
func (p *pretendedGPUs) serve() error {
	kubelet, err := os.Stat(api.KubeletSocket)
	if err != nil {
		return err
	}
	path := filepath.Join(api.DevicePluginPath, gpuSocket)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go server.Serve(listener) //nolint:errcheck // ends with Stop
	defer server.Stop()

	conn, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: gpuSocket, ResourceName: gpuResource, Options: &api.DevicePluginOptions{},
	}); err != nil {
		return fmt.Errorf("registering with the kubelet: %w", err)
	}
	for {
		time.Sleep(gpuPoll)
		now, err := os.Stat(api.KubeletSocket)
		// The kubelet empties the directory when it starts, our socket with it.
		if _, ownErr := os.Stat(path); err != nil || ownErr != nil || !sameSocket(kubelet, now) {
			return nil
		}
	}
}

// sameSocket tells a socket from its successor, which may get the same inode.
func sameSocket(a, b os.FileInfo) bool {
	x, y := a.Sys().(*syscall.Stat_t), b.Sys().(*syscall.Stat_t)
	return x.Ino == y.Ino && x.Ctim == y.Ctim
}

// GetDevicePluginOptions says that neither PreStartContainer nor GetPreferredAllocation is wanted.
func (p *pretendedGPUs) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch sends the list of GPUs whenever their number changes.
func (p *pretendedGPUs) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	sent := -1
	for {
		n, err := p.count()
		if err != nil {
			return err
		}
		if n != sent {
			var list api.ListAndWatchResponse
			for i := range n {
				list.Devices = append(list.Devices, &api.Device{ID: fmt.Sprintf("GPU-pretended-%d", i), Health: api.Healthy})
			}
			if err := stream.Send(&list); err != nil {
				return err
			}
			sent = n
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(gpuPoll):
		}
	}
}

// Allocate gives a container /dev/nvidia0, /dev/nvidia1, ... (each a null
// device), which is what slurmd wants to see for File= in gres.conf.
func (p *pretendedGPUs) Allocate(_ context.Context, req *api.AllocateRequest) (*api.AllocateResponse, error) {
	res := &api.AllocateResponse{}
	for _, c := range req.ContainerRequests {
		one := &api.ContainerAllocateResponse{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(c.DevicesIds, ",")}}
		for i := range c.DevicesIds {
			one.Devices = append(one.Devices, &api.DeviceSpec{
				HostPath: os.DevNull, ContainerPath: fmt.Sprintf("/dev/nvidia%d", i), Permissions: "rw",
			})
		}
		res.ContainerResponses = append(res.ContainerResponses, one)
	}
	return res, nil
}

// GetPreferredAllocation is never called: see GetDevicePluginOptions.
func (p *pretendedGPUs) GetPreferredAllocation(context.Context, *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	return &api.PreferredAllocationResponse{}, nil
}

// PreStartContainer is never called: see GetDevicePluginOptions.
func (p *pretendedGPUs) PreStartContainer(context.Context, *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	return &api.PreStartContainerResponse{}, nil
}
