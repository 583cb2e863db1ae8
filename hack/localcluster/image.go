package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// file is one file of an image made here.
type file struct {
	name string
	mode int64
	data []byte
}

// imageConfig is the part of an image's configuration that we set. Without
// architecture and os, containerd finds no image for this machine.
type imageConfig struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Config       struct {
		Entrypoint []string `json:"Entrypoint"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// writeImage writes a docker archive with one layer.
func writeImage(w io.Writer, tag string, entrypoint []string, files []file) error {
	layer, err := tarball(files)
	if err != nil {
		return err
	}
	var config imageConfig
	config.Architecture, config.OS = runtime.GOARCH, "linux"
	config.Config.Entrypoint = entrypoint
	config.RootFS.Type, config.RootFS.DiffIDs = "layers", []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}
	configJSON, err := json.Marshal(config)
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{tag}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	archive, err := tarball([]file{{"layer.tar", 0o644, layer}, {"config.json", 0o644, configJSON}, {"manifest.json", 0o644, manifest}})
	if err != nil {
		return err
	}
	_, err = w.Write(archive)
	return err
}

func tarball(files []file) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// importPause waits for containerd and gives it the image of pod sandboxes.
func (c *cluster) importPause(ctx context.Context) error {
	program, err := os.ReadFile(filepath.Join(c.cache, c.rec.Programs["pause"]))
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := writeImage(&archive, pauseImage, []string{"/pause"}, []file{{"pause", 0o755, program}}); err != nil {
		return err
	}
	if err := c.poll(ctx, func() bool {
		return c.ctr(ctx, "version").Run() == nil
	}); err != nil {
		return fmt.Errorf("containerd does not answer: %w: %s", err, tail(filepath.Join(c.logs(), "containerd.log"), 5))
	}
	_, err = c.importImages(ctx, &archive)
	return err
}

func (c *cluster) ctr(ctx context.Context, args ...string) *exec.Cmd {
	return c.enter(ctx, "ctr", append([]string{"--address", containerdSocket, "--namespace", "k8s.io"}, args...)...)
}

// importImages gives an image archive to containerd and returns the images'
// names once the kubelet can see them.
func (c *cluster) importImages(ctx context.Context, archive io.Reader) ([]string, error) {
	cmd := c.ctr(ctx, "images", "import", "--local", "-")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = archive, &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("importing images: %w: %s", err, strings.TrimSpace(errs.String()))
	}
	names := importedNames(out.String())
	if len(names) == 0 {
		return nil, fmt.Errorf("the archive holds no named image: %s", strings.TrimSpace(out.String()+errs.String()))
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, name := range names {
		// containerd's CRI side learns of an image by an event, and then labels it.
		if err := c.poll(ctx, func() bool {
			cmd := c.ctr(ctx, "images", "ls", "--quiet", fmt.Sprintf(`name==%q,labels."io.cri-containerd.image"==managed`, name))
			out, err := cmd.Output()
			return err == nil && len(bytes.TrimSpace(out)) > 0
		}); err != nil {
			return nil, fmt.Errorf("image %s was imported but the kubelet cannot see it: %w", name, err)
		}
	}
	return names, nil
}

// importedNames picks the image names from ctr's report of lines like
// "unpacking NAME (sha256:...)...done".
func importedNames(report string) []string {
	var names []string
	for line := range strings.Lines(report) {
		fields := strings.Fields(line)
		if len(fields) > 1 && fields[0] == "unpacking" {
			names = append(names, fields[1])
		}
	}
	return names
}

// loadImages is the command load-image.
func (c *cluster) loadImages(ctx context.Context, files []string) error {
	if err := c.mustRun(); err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("load-image: name at least one image archive (docker or OCI, gzip allowed)")
	}
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		names, err := c.importImages(ctx, f)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		c.out.say("cluster %s: loaded %s", c.name, strings.Join(names, ", "))
	}
	return nil
}
