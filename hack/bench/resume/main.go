// Command resume measures the resume program from exec to exit, the way slurmctld calls
// it, and prints one JSON object:
//
//	filesystem        where the spool lay (statfs type, hexadecimal)
//	nodes, jobs       size of the request
//	hostlist_bytes    length of the hostlist argument
//	resume_file_bytes length of the resume file
//	runs              calls one after the other
//	p50_ms, p99_ms, max_ms
//	                  exec to exit of these calls
//	max_rss_kb        largest resident set among them; the kernel counts the caller's own
//	                  size at fork, so this is an upper bound
//	exec_p50_ms, exec_p99_ms
//	                  the same for a program that does nothing (/bin/true), as a measure
//	                  of the machine's noise
//	copies            calls at once
//	copies_ms         from the first exec to the last exit of these
//	failed            calls that did not exit with 0
//	lost              accepted requests that are not in the spool, or not whole
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/slurmtide/slurmtide/powersave/spool"
)

type result struct {
	Filesystem      string  `json:"filesystem"`
	Nodes           int     `json:"nodes"`
	Jobs            int     `json:"jobs"`
	HostlistBytes   int     `json:"hostlist_bytes"`
	ResumeFileBytes int     `json:"resume_file_bytes"`
	Runs            int     `json:"runs"`
	P50             float64 `json:"p50_ms"`
	P99             float64 `json:"p99_ms"`
	Max             float64 `json:"max_ms"`
	MaxRSS          int64   `json:"max_rss_kb"`
	ExecP50         float64 `json:"exec_p50_ms"`
	ExecP99         float64 `json:"exec_p99_ms"`
	Copies          int     `json:"copies"`
	CopiesTime      float64 `json:"copies_ms"`
	Failed          int64   `json:"failed"`
	Lost            int     `json:"lost"`
}

type bench struct {
	program, dir, nodes string
	resumeFile          []byte
	env                 []string
}

func main() {
	program := flag.String("program", "bin/resume", "the resume program to measure")
	dir := flag.String("dir", "", "directory for the spool, on the file system to measure (default: a temporary one)")
	runs := flag.Int("runs", 500, "calls one after the other")
	copies := flag.Int("copies", 100, "calls at once")
	nodes := flag.Int("nodes", 10000, "nodes in the request")
	jobs := flag.Int("jobs", 1000, "jobs in the resume file")
	flag.Parse()
	if err := run(*program, *dir, *runs, *copies, *nodes, *jobs); err != nil {
		fmt.Fprintln(os.Stderr, "bench resume:", err)
		os.Exit(1)
	}
}

func run(program, dir string, runs, copies, nodes, jobs int) (err error) {
	program, err = filepath.Abs(program)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(dir, "bench-resume-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	b := &bench{program: program, dir: filepath.Join(tmp, "spool"), nodes: hostlist(0, nodes), resumeFile: resumeFile(nodes, jobs)}
	file, err := os.Create(filepath.Join(tmp, "resume.json"))
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(b.resumeFile); err != nil {
		return err
	}
	// As slurmctld does: a path under /proc, and nothing else in the environment.
	b.env = []string{
		"SLURM_CONF=" + filepath.Join(tmp, "slurm.conf"),
		fmt.Sprintf("SLURM_RESUME_FILE=/proc/%d/fd/%d", os.Getpid(), file.Fd()),
		"SLURMTIDE_SPOOL=" + b.dir,
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(tmp, &st); err != nil {
		return err
	}
	r := result{Filesystem: fmt.Sprintf("%#x", st.Type), Nodes: nodes, Jobs: jobs, HostlistBytes: len(b.nodes), ResumeFileBytes: len(b.resumeFile), Runs: runs, Copies: copies}

	sp, err := spool.Open(b.dir)
	if err != nil {
		return err
	}
	var times, empty []float64
	for range runs {
		ms, rss, err := b.call(b.program, b.nodes)
		if err != nil {
			r.Failed++
			fmt.Fprintln(os.Stderr, err)
		}
		times, r.MaxRSS = append(times, ms), max(r.MaxRSS, rss)
		ms, _, err = b.call("/bin/true")
		if err != nil {
			return err
		}
		empty = append(empty, ms)
		lost, err := b.take(sp, 1)
		if err != nil {
			return err
		}
		r.Lost += lost
	}
	r.P50, r.P99, r.Max = quantile(times, 0.5), quantile(times, 0.99), quantile(times, 1)
	r.ExecP50, r.ExecP99 = quantile(empty, 0.5), quantile(empty, 0.99)
	if err := b.atOnce(sp, &r); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(r)
}

// call runs a program and returns milliseconds and kilobytes.
func (b *bench) call(program string, args ...string) (ms float64, rss int64, err error) {
	var stderr bytes.Buffer
	cmd := &exec.Cmd{Path: program, Args: append([]string{program}, args...), Env: b.env, Stderr: &stderr}
	begin := time.Now()
	err = cmd.Run()
	ms = float64(time.Since(begin).Microseconds()) / 1000
	if err != nil {
		return ms, 0, fmt.Errorf("%s: %w: %s", program, err, stderr.Bytes())
	}
	return ms, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss, nil
}

// take removes what is in the spool and returns how many of the wanted requests were not there whole.
func (b *bench) take(sp *spool.Spool, want int) (lost int, err error) {
	reqs, _, err := sp.Pending(nil)
	if err != nil {
		return 0, err
	}
	whole := 0
	for _, r := range reqs {
		if bytes.Equal(r.ResumeFile, b.resumeFile) {
			whole++
		}
		if err := sp.Done(r.ID); err != nil {
			return 0, err
		}
	}
	return want - whole, nil
}

// atOnce starts all copies, each with another hostlist, and looks for every one of them.
func (b *bench) atOnce(sp *spool.Spool, r *result) error {
	var failed atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range r.Copies {
		wg.Go(func() {
			if _, _, err := b.call(b.program, hostlist(i, 100)); err != nil {
				failed.Add(1)
				fmt.Fprintln(os.Stderr, err)
			}
		})
	}
	wg.Wait()
	r.CopiesTime = float64(time.Since(begin).Microseconds()) / 1000
	r.Failed += failed.Load()
	reqs, _, err := sp.Pending(nil)
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for _, q := range reqs {
		if bytes.Equal(q.ResumeFile, b.resumeFile) {
			found[q.Nodes] = true
		}
	}
	r.Lost += r.Copies - int(failed.Load()) - len(found)
	return nil
}

// hostlist names n nodes that form no ranges, the longest way slurmctld writes them.
func hostlist(first, n int) string {
	var s strings.Builder
	s.WriteString("cpu-[")
	for i := range n {
		if i > 0 {
			s.WriteByte(',')
		}
		fmt.Fprintf(&s, "%05d", first+2*i)
	}
	s.WriteByte(']')
	return s.String()
}

// resumeFile is what Slurm 26.05 writes for jobs that share n nodes out evenly.
func resumeFile(n, jobs int) []byte {
	type job struct {
		Extra         *string `json:"extra"`
		Features      *string `json:"features"`
		JobID         int     `json:"job_id"`
		NodesAlloc    string  `json:"nodes_alloc"`
		NodesResume   string  `json:"nodes_resume"`
		Oversubscribe string  `json:"oversubscribe"`
		Exclusive     string  `json:"exclusive"`
		Priority      uint32  `json:"priority"`
		Partition     string  `json:"partition"`
		Reservation   *string `json:"reservation"`
	}
	file := struct {
		All  string `json:"all_nodes_resume"`
		Jobs []job  `json:"jobs"`
	}{All: hostlist(0, n)}
	for i := range jobs {
		nodes := hostlist(2*i*n/jobs, n/jobs)
		file.Jobs = append(file.Jobs, job{JobID: 100000 + i, NodesAlloc: nodes, NodesResume: nodes, Oversubscribe: "NO", Exclusive: "NODE", Priority: 4294901759, Partition: "batch"})
	}
	data, err := json.MarshalIndent(file, "", "\t")
	if err != nil {
		panic(err) // strings and numbers only
	}
	return data
}

func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(len(values)-1, int(q*float64(len(values))))]
}
