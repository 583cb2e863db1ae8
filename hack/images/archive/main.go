// Archive writes a docker-archive ("docker save" format) from a root file system tar or from single files, so that images can be
// made where no container engine runs. See hack/images/build.sh.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "archive:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var img Image
	fs := flag.NewFlagSet("archive", flag.ContinueOnError)
	out := fs.String("o", "", "archive to write")
	fs.StringVar(&img.Tag, "tag", "", "name:tag of the image")
	fs.StringVar(&img.Arch, "arch", "", "architecture, GOARCH")
	fs.StringVar(&img.User, "user", "", "uid:gid of its processes")
	fs.Func("entrypoint", "program (repeat for its arguments)", appendTo(&img.Entrypoint))
	fs.Func("env", "KEY=value (repeatable)", appendTo(&img.Env))
	fs.Func("layer", "uncompressed tar (repeatable, lowest first)", appendTo(&img.LayerTars))
	fs.Func("add", "source=/target of a program (repeatable)", func(s string) error {
		source, target, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("%q is not source=/target", s)
		}
		img.Files = append(img.Files, File{Source: source, Target: target})
		return nil
	})
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *out == "" || img.Tag == "" || img.Arch == "" {
		return fmt.Errorf("-o, -tag and -arch are needed")
	}

	// A half-written archive never stands under the final name.
	tmp := *out + ".part"
	f, err := os.Create(tmp)
	if err != nil {
		return fmt.Errorf("creating archive: %w", err)
	}
	defer os.Remove(tmp)
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := Write(w, img); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing archive: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("writing archive: %w", err)
	}
	return os.Rename(tmp, *out)
}

func appendTo(list *[]string) func(string) error {
	return func(s string) error {
		*list = append(*list, s)
		return nil
	}
}
