package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// Image describes one image with one or two layers.
type Image struct {
	Tag        string   // name:tag, without a registry
	Arch       string   // GOARCH; an importer refuses an image without it
	User       string   // uid:gid, empty for root
	Entrypoint []string // program and arguments
	Env        []string // KEY=value
	LayerTars  []string // paths of uncompressed tars, lowest first
	Files      []File   // become the topmost layer
}

// File is one regular file of the topmost layer, executable by everybody, writable by nobody.
type File struct {
	Source string // path here
	Target string // absolute path in the image
}

type imageConfig struct {
	Created      time.Time       `json:"created"`
	Architecture string          `json:"architecture"`
	OS           string          `json:"os"`
	Config       containerConfig `json:"config"`
	RootFS       rootFS          `json:"rootfs"`
}

type containerConfig struct {
	User       string   `json:"User,omitempty"`
	Entrypoint []string `json:"Entrypoint,omitempty"`
	Env        []string `json:"Env,omitempty"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type manifestEntry struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// Write streams img to w in the format of "docker save": manifest.json, a config and the layers, uncompressed, since the archive
// is read once from a local disk. The same input gives the same bytes.
func Write(w io.Writer, img Image) error {
	var layers []layer
	for _, p := range img.LayerTars {
		sum, size, err := hashFile(p)
		if err != nil {
			return fmt.Errorf("hashing layer: %w", err)
		}
		layers = append(layers, layer{sum: sum, size: size, open: func() (io.ReadCloser, error) { return os.Open(p) }})
	}
	if len(img.Files) > 0 {
		l, err := filesLayer(img.Files)
		if err != nil {
			return err
		}
		layers = append(layers, l)
	}
	if len(layers) == 0 {
		return fmt.Errorf("image %s has no content: give -layer or -add", img.Tag)
	}

	cfg := imageConfig{
		Created:      time.Unix(0, 0).UTC(),
		Architecture: img.Arch,
		OS:           "linux",
		Config:       containerConfig{User: img.User, Entrypoint: img.Entrypoint, Env: img.Env},
		RootFS:       rootFS{Type: "layers"},
	}
	manifest := manifestEntry{RepoTags: []string{img.Tag}}
	for _, l := range layers {
		cfg.RootFS.DiffIDs = append(cfg.RootFS.DiffIDs, "sha256:"+l.sum)
		manifest.Layers = append(manifest.Layers, l.sum+".tar")
	}
	cfgJSON, err := json.Marshal(cfg)
	if err != nil {
		return fmt.Errorf("encoding image config: %w", err)
	}
	cfgSum := sha256.Sum256(cfgJSON)
	manifest.Config = hex.EncodeToString(cfgSum[:]) + ".json"
	manifestJSON, err := json.Marshal([]manifestEntry{manifest})
	if err != nil {
		return fmt.Errorf("encoding manifest: %w", err)
	}

	tw := tar.NewWriter(w)
	if err := addBytes(tw, "manifest.json", manifestJSON); err != nil {
		return err
	}
	if err := addBytes(tw, manifest.Config, cfgJSON); err != nil {
		return err
	}
	for i, l := range layers {
		// Two equal layers share one file.
		if slices.Index(manifest.Layers, l.sum+".tar") < i {
			continue
		}
		if err := l.writeTo(tw); err != nil {
			return fmt.Errorf("writing layer %d: %w", i, err)
		}
	}
	return tw.Close()
}

// layer is one uncompressed tar that can be read again.
type layer struct {
	sum  string // hex SHA-256
	size int64
	open func() (io.ReadCloser, error)
}

func (l layer) writeTo(tw *tar.Writer) error {
	if err := tw.WriteHeader(&tar.Header{Name: l.sum + ".tar", Mode: 0o644, Size: l.size}); err != nil {
		return err
	}
	r, err := l.open()
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(tw, r)
	return err
}

// filesLayer holds the layer in memory: it is made for a handful of programs.
func filesLayer(files []File) (layer, error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Target, b.Target) })
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	made := map[string]bool{".": true}
	for _, f := range files {
		name := strings.TrimPrefix(path.Clean(f.Target), "/")
		if !path.IsAbs(f.Target) || name == "" {
			return layer{}, fmt.Errorf("target %q of %s is not an absolute path of a file", f.Target, f.Source)
		}
		if err := addParents(tw, made, path.Dir(name)); err != nil {
			return layer{}, err
		}
		data, err := os.ReadFile(f.Source)
		if err != nil {
			return layer{}, fmt.Errorf("reading file for the image: %w", err)
		}
		// slurmctld refuses programs that group or others can write.
		if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
			return layer{}, fmt.Errorf("adding %s: %w", name, err)
		}
		if _, err := tw.Write(data); err != nil {
			return layer{}, fmt.Errorf("adding %s: %w", name, err)
		}
	}
	if err := tw.Close(); err != nil {
		return layer{}, err
	}
	sum := sha256.Sum256(buf.Bytes())
	return layer{
		sum:  hex.EncodeToString(sum[:]),
		size: int64(buf.Len()),
		open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil },
	}, nil
}

func addParents(tw *tar.Writer, made map[string]bool, dir string) error {
	if made[dir] {
		return nil
	}
	if err := addParents(tw, made, path.Dir(dir)); err != nil {
		return err
	}
	made[dir] = true
	return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755})
}

func addBytes(tw *tar.Writer, name string, data []byte) error {
	if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if _, err := tw.Write(data); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

func hashFile(p string) (sum string, size int64, err error) {
	f, err := os.Open(p)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	if size, err = io.Copy(h, f); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}
