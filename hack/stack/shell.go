package stack

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"k8s.io/client-go/tools/remotecommand"
)

// Each exec has the container runtime set a process up: with scontrol it cost 0.18 s of a processor on a quiet machine of 2 cores, in a
// shell that stays 0.035 s. Who looks at Slurm again and again is spared the difference.

// serve runs the scripts that it is given on standard input, each ended by a NUL, in a shell of its own, and says on both outputs
// when one has ended: its $0, which no command prints.
const serve = `while IFS= read -r -d "" script; do
	(eval "$script") </dev/null
	status=$?
	echo "$0 $status"
	echo "$0" >&2
done`

// shells are those of one container that have nothing to do.
type shells struct {
	mu   sync.Mutex
	idle []*shell
}

// shell is one that serves.
type shell struct {
	mark        string
	stdin       *io.PipeWriter
	out, errOut *bufio.Reader
	stop        context.CancelFunc
	ended       chan struct{} // closed when it has
}

// runInShell runs the command in a shell that waits, or in a new one.
func (s *Stack) runInShell(ctx context.Context, pod string, stdin io.Reader, container string, command []string) (stdout, stderr string, err error) {
	script := "exec " + quoted(command)
	if stdin != nil {
		input, err := io.ReadAll(stdin)
		if err != nil {
			return "", "", fmt.Errorf("reading what %s is to read: %w", command[0], err)
		}
		script = "printf %s " + quote(string(input)) + " | " + quoted(command)
	}
	if strings.ContainsRune(script, 0) {
		return "", "", fmt.Errorf("%s: neither arguments nor input may have a NUL in them", command[0])
	}
	all := s.shellsOf(pod + "/" + container)
	sh := all.take()
	if sh == nil {
		if sh, err = s.startShell(pod, container); err != nil {
			return "", "", err
		}
	}
	stdout, stderr, status, err := sh.run(ctx, script)
	if err != nil {
		sh.stop()
		return stdout, stderr, fmt.Errorf("exec of %s in %s/%s: %w", strings.Join(command, " "), pod, container, err)
	}
	all.give(sh)
	if status != 0 {
		err = &ExitError{Command: command, Status: status, Stderr: stderr}
	}
	return stdout, stderr, err
}

func (s *Stack) shellsOf(container string) *shells {
	all, _ := s.shells.LoadOrStore(container, &shells{})
	return all.(*shells)
}

func (s *shells) take() *shell {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.idle) > 0 {
		last := s.idle[len(s.idle)-1]
		s.idle = s.idle[:len(s.idle)-1]
		select {
		case <-last.ended: // with its container
		default:
			return last
		}
	}
	return nil
}

func (s *shells) give(sh *shell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, sh)
}

// startShell begins the exec.
func (s *Stack) startShell(pod, container string) (*shell, error) {
	mark := rand.Text()
	executor, err := s.executor(pod, container, true, "bash", "-c", serve, mark)
	if err != nil {
		return nil, err
	}
	return newShell(mark, func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
		return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout, Stderr: stderr})
	}), nil
}

// newShell lets what serves run until it ends, not only as long as the command that it was started for.
func newShell(mark string, serves func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error) *shell {
	ctx, stop := context.WithCancel(context.Background())
	stdin, toStdin := io.Pipe()
	out, stdout := io.Pipe()
	errOut, stderr := io.Pipe()
	sh := &shell{
		mark: mark, stdin: toStdin, out: bufio.NewReader(out), errOut: bufio.NewReader(errOut), stop: stop, ended: make(chan struct{}),
	}
	go func() {
		defer close(sh.ended)
		defer stop()
		err := serves(ctx, stdin, stdout, stderr)
		if err == nil {
			err = errors.New("the shell has ended")
		}
		_ = stdout.CloseWithError(err)
		_ = stderr.CloseWithError(err)
		_ = stdin.CloseWithError(err)
	}()
	return sh
}

// run waits for the end of the script, or of ctx.
func (sh *shell) run(ctx context.Context, script string) (stdout, stderr string, status int, err error) {
	defer context.AfterFunc(ctx, sh.stop)()
	if _, err := io.WriteString(sh.stdin, script+"\x00"); err != nil {
		return "", "", 0, cmp.Or(ctx.Err(), err)
	}
	said := make(chan struct{})
	var stderrErr error
	go func() {
		defer close(said)
		stderr, _, stderrErr = until(sh.errOut, sh.mark)
	}()
	stdout, rest, err := until(sh.out, sh.mark)
	<-said
	if err = errors.Join(err, stderrErr); err != nil {
		return stdout, stderr, 0, cmp.Or(ctx.Err(), err)
	}
	if status, err = strconv.Atoi(strings.TrimSpace(rest)); err != nil {
		return stdout, stderr, 0, fmt.Errorf("reading its exit status: %w", err)
	}
	return stdout, stderr, status, nil
}

// until reads what comes before the mark, and the rest of the mark's line.
func until(r *bufio.Reader, mark string) (before, rest string, err error) {
	var all bytes.Buffer
	for {
		line, err := r.ReadString('\n')
		// What a command prints last need not end its line.
		if text, after, found := strings.Cut(line, mark); found {
			all.WriteString(text)
			return all.String(), after, err
		}
		all.WriteString(line)
		if err != nil {
			return all.String(), "", err
		}
	}
}

func quoted(words []string) string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = quote(w)
	}
	return strings.Join(all, " ")
}

// quote makes one word of the shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
