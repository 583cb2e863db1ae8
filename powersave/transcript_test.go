package powersave_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// TestTranscripts plays testdata/*.txt: a line that starts in the first column is a command,
// the indented lines below it are what the engine answered.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(f)
			require.NoError(t, err)
			golden.Compare(t, f, play(t, string(script)))
		})
	}
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

type player struct {
	t      *testing.T
	engine *powersave.Engine
	now    time.Time
	asked  bool // a read of Slurm is under way
	// reasons of the newest update of each kind, and of each kind and node, for the answers
	reasons map[string]string
	serials map[string]int // of the newest TellJob and HoldJob of each job, likewise
	marks   bool           // MarkPod is shown
	backs   bool           // ReadBacks is shown
	gangs   bool           // GangDone is shown
	taints  []powersave.TaintHost
}

func play(t *testing.T, script string) string {
	p := &player{t: t, engine: powersave.New(powersave.Config{BadHardware: regexp.MustCompile("NHC"), Alone: true}), now: epoch, reasons: map[string]string{"drain": "slurmtide: closed: no room"}, serials: map[string]int{}}
	var out strings.Builder
	for _, line := range strings.Split(strings.TrimRight(script, "\n"), "\n") {
		if strings.HasPrefix(line, " ") {
			continue
		}
		out.WriteString(line + "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		for _, s := range p.run(strings.Fields(line)) {
			out.WriteString("  " + s + "\n")
		}
	}
	return out.String()
}

func (p *player) run(f []string) []string {
	cmd, args := f[0], f[1:]
	switch cmd {
	case "at":
		p.now = epoch.Add(p.duration(args[0]))
		return nil
	case "wake":
		next := p.engine.NextWake()
		if next.IsZero() {
			return []string{"nothing to wake for"}
		}
		if next.After(p.now) {
			p.now = next
		}
		return append([]string{"at " + p.now.Sub(epoch).String()}, p.step(powersave.Tick{})...)
	case "status":
		return p.status()
	case "boot-times":
		var out []string
		for _, s := range p.engine.Counts() {
			p95, known := s.BootTimes.P95()
			out = append(out, fmt.Sprintf("%s: %v: 95%% within %v, %v", s.Name, []time.Duration(s.BootTimes), p95, known))
		}
		return out
	case "marks":
		p.marks = true
		return nil
	case "backs":
		p.backs = true
		return nil
	case "gangs":
		p.gangs = true
		return nil
	case "hosted":
		var out []string
		for _, h := range p.engine.Hosted() {
			s := "hosted " + h.NodeSet + "/" + h.Offering + ":"
			for _, as := range slices.Sorted(maps.Keys(h.Nodes)) {
				s += fmt.Sprintf(" %d %s", h.Nodes[as], as)
			}
			out = append(out, s)
		}
		return out
	case "one-of-several": // bridges; comes first
		p.engine = powersave.New(powersave.Config{})
		return nil
	case "slurm", "slurm-failed":
		// An answer needs a question: let time pass until the engine asks.
		var out []string
		for range 20 {
			if p.asked {
				return append(out, p.step(p.event(cmd, args))...)
			}
			out = append(out, p.run([]string{"wake"})...)
		}
		require.FailNow(p.t, "the engine does not read Slurm")
	}
	return p.step(p.event(cmd, args))
}

func (p *player) event(cmd string, args []string) powersave.Event {
	switch cmd {
	case "tick":
		return powersave.Tick{}
	case "nodesets":
		var ev powersave.NodeSetsRead
		for _, a := range args {
			name, rest, _ := strings.Cut(a, "=")
			rest, options, _ := strings.Cut(rest, ";")
			nodes, problem, _ := strings.Cut(rest, "!")
			set := powersave.NodeSet{Name: name, Nodes: p.hostlist(nodes), Problem: problem}
			for _, o := range strings.FieldsFunc(options, func(r rune) bool { return r == ';' }) {
				switch key, v, _ := strings.Cut(o, "="); key {
				case "strategy":
					set.Strategy = powersave.BootStrategy(v)
				case "deadline":
					set.Deadline = p.duration(v)
				case "backoff": // the first
					set.BackoffInitial = p.duration(v)
				case "grace":
					set.UnschedulableGrace = p.duration(v)
				case "room":
					set.AskForRoom = true
				case "floor":
					set.Floor = int(p.int(v))
				case "was":
					set.FloorWas = int(p.int(v))
				case "boots":
					for _, took := range strings.Split(v, ",") {
						set.BootTimes = append(set.BootTimes, p.duration(took))
					}
				case "most":
					set.MaxPoweredUp = int(p.int(v))
				case "window": // replicas, every, for
					f := strings.Split(v, "/")
					set.Windows = append(set.Windows, powersave.FloorWindow{Replicas: int(p.int(f[0])), Schedule: every(p.duration(f[1])), Duration: p.duration(f[2])})
				case "rev":
					set.Revision = v
				case "rolling":
					most, percent := strings.CutSuffix(v, "%")
					set.Rolling = &powersave.RollingUpdate{MaxUnavailable: int(p.int(most)), Percent: percent}
				case "once": // from/for
					from, duration, _ := strings.Cut(v, "/")
					set.Window = &powersave.UpdateWindow{Schedule: once(epoch.Add(p.duration(from))), Duration: p.duration(duration)}
				case "again": // every/for
					from, duration, _ := strings.Cut(v, "/")
					set.Window = &powersave.UpdateWindow{Schedule: every(p.duration(from)), Duration: p.duration(duration)}
				case "spec":
					set.SpecGeneration = p.int(v)
				case "pinned":
					set.Pinned, set.HostSuffix = true, v
				case "hash": // of the spec
					set.SpecHash = v
				case "offering":
					name, limit, limited := strings.Cut(v, ":")
					o := powersave.Offering{Name: name}
					if limited {
						o.Limit = int(p.int(limit))
					}
					set.Offerings = append(set.Offerings, o)
				default:
					require.FailNow(p.t, "unknown option", o)
				}
			}
			ev.NodeSets = append(ev.NodeSets, set)
		}
		return ev
	case "pods":
		var ev powersave.PodsRead
		for _, a := range args {
			ev.Pods = append(ev.Pods, p.pod(strings.Split(a, "/")))
		}
		return ev
	case "pod":
		return powersave.PodSeen{Pod: p.pod(args)}
	case "gone":
		return powersave.PodGone{Node: args[0], UID: args[1]}
	case "resume", "suspend", "resume-fail":
		r := powersave.Request{ID: args[0], Sequence: p.int(args[1]), Kind: spool.Kind(cmd), Started: p.now.Add(-10 * time.Millisecond), Nodes: p.hostlist(args[2])}
		for _, a := range args[3:] {
			key, v, _ := strings.Cut(a, "=")
			switch key {
			case "age":
				r.Started = p.now.Add(-p.duration(v))
				continue
			case "rate":
				r.AllAtOnce = v == "0"
				continue
			case "timeout":
				r.ResumeTimeout = p.duration(v)
				continue
			case "suspend":
				r.SuspendTime = p.duration(v)
				continue
			}
			require.Equal(p.t, "job", key)
			id, nodes, _ := strings.Cut(v, ":")
			r.Jobs = append(r.Jobs, powersave.Job{ID: uint32(p.int(id)), Nodes: p.hostlist(nodes)})
		}
		return powersave.RequestAccepted{Request: r}
	case "slurm":
		p.now = p.now.Add(5 * time.Millisecond)
		ev := powersave.SlurmRead{}
		for _, a := range args {
			name, v, hasState := strings.Cut(a, "=")
			switch {
			case name == "complete":
				ev.Complete = true
			case !hasState:
				ev.Unknown = append(ev.Unknown, name)
			default:
				v, instance, _ := strings.Cut(v, "@")
				v, busy, _ := strings.Cut(v, "^")
				var lastBusy time.Time
				if busy != "" {
					lastBusy = epoch.Add(p.duration(busy))
				}
				state, reason, _ := strings.Cut(v, "!")
				for n := range p.hostlist(name).All() {
					ev.Nodes = append(ev.Nodes, powersave.SlurmNode{
						Name: n, State: powersave.ParseNodeState(strings.Split(state, "+")), Reason: strings.ReplaceAll(reason, "_", " "),
						InstanceID: instance, LastBusy: lastBusy,
					})
				}
			}
		}
		return ev
	case "slurm-failed":
		return powersave.SlurmReadFailed{Err: strings.Join(args, " ")}
	case "created":
		return powersave.PodCreated{Node: args[0], UID: args[1], Generation: p.int(args[2])}
	case "marked":
		return powersave.PodMarked{MarkPod: powersave.MarkPod{Node: args[0], UID: args[1], Busy: args[2] == "busy"}, Err: strings.Join(args[3:], " ")}
	case "create-failed":
		return powersave.PodCreateFailed{Node: args[0], Generation: p.int(args[1]), Permanent: args[2] == "permanent" || args[2] == "forbidden", Everywhere: args[2] == "forbidden", Err: strings.Join(args[2:], " ")}
	case "create-exists":
		pod := p.pod(args[2:])
		return powersave.PodCreateFailed{Node: args[0], Generation: p.int(args[1]), Existing: &pod, Err: "exists"}
	case "deleted":
		return powersave.PodDeleted{Node: args[0], UID: args[1], Gone: len(args) > 2}
	case "delete-failed":
		return powersave.PodDeleteFailed{Node: args[0], UID: args[1], Err: strings.Join(args[2:], " ")}
	case "updated":
		u := powersave.NodeUpdate{State: powersave.StateChange(args[0])}
		if args[0] == "reason" {
			u.State = powersave.StateNone
		}
		u.Reason = p.reasons[string(u.State)]
		for n := range p.hostlist(args[1]).All() {
			u.Nodes = append(u.Nodes, n)
			if reason, sent := p.reasons[string(u.State)+" "+n]; sent {
				u.Reason = reason
			}
		}
		return powersave.NodesUpdated{Update: u, Err: strings.Join(args[2:], " ")}
	case "told-before": // the answer to the call before the newest
		return powersave.JobTold{Job: uint32(p.int(args[0])), Serial: p.serials["told "+args[0]] - 1}
	case "told":
		ev := powersave.JobTold{Job: uint32(p.int(args[0])), Serial: p.serials["told "+args[0]]}
		for i, a := range args[1:] {
			switch key, v, _ := strings.Cut(a, "="); key {
			case "interactive":
				ev.Interactive = true
			case "times":
				ev.Times = int(p.int(v))
			case "attempt":
				ev.Attempt = int(p.int(v))
			case "part":
				job, nodes, _ := strings.Cut(v, ":")
				ev.Parts = append(ev.Parts, powersave.JobPart{Job: uint32(p.int(job)), Nodes: slices.Collect(p.hostlist(nodes).All())})
			default:
				ev.Err = strings.Join(args[1+i:], " ")
				return ev
			}
		}
		return ev
	case "backs-read": // job:times:rested, job:leaves, job:leaves:times, job:rests or job:rests:times
		ev := powersave.BacksRead{}
		for _, a := range args {
			f := strings.Split(a, ":")
			if len(f) == 1 {
				return powersave.BacksRead{Err: strings.Join(args, " ")}
			}
			j := powersave.JobBack{Job: uint32(p.int(f[0])), Leaves: f[1] == "leaves", Rests: f[1] == "rests"}
			if (j.Leaves || j.Rests) && len(f) > 2 {
				j.Times = int(p.int(f[2]))
			}
			if !j.Leaves && !j.Rests {
				j.Times, j.Rested = int(p.int(f[1])), p.duration(f[2])
			}
			ev.Jobs = append(ev.Jobs, j)
		}
		return ev
	case "held":
		held := powersave.JobHeld{Job: uint32(p.int(args[0])), Serial: p.serials["held "+args[0]], Err: strings.Join(args[1:], " ")}
		if held.Err == "again" {
			held.Again, held.Err = true, ""
		}
		return held
	case "gate":
		ev := powersave.GateOpened{ID: uint64(p.int(args[0])), JobID: uint32(p.int(args[1])), Nodes: p.hostlist(args[2])}
		for _, a := range args[min(len(args), 3):] {
			if leader, ok := strings.CutPrefix(a, "het="); ok {
				ev.HetJob = uint32(p.int(leader))
				continue
			}
			if n, ok := strings.CutPrefix(a, "attempt="); ok {
				ev.Attempt = int(p.int(n))
				continue
			}
			ev.Deadline = p.now.Add(p.duration(a))
		}
		return ev
	case "hosts":
		var ev powersave.HostsRead
		for _, a := range args {
			name, trouble, _ := strings.Cut(a, "=")
			ev.Hosts = append(ev.Hosts, powersave.Host{Name: name, Trouble: strings.ReplaceAll(trouble, "_", " ")})
		}
		return ev
	case "host":
		if len(args) > 1 && args[1] == "repels" {
			return powersave.HostSeen{Host: powersave.Host{Name: args[0], Repels: strings.Join(args[2:], " ")}}
		}
		return powersave.HostSeen{Host: powersave.Host{Name: args[0], Trouble: strings.Join(args[1:], " ")}}
	case "hosts-unread":
		return powersave.HostsUnread{Err: strings.Join(args, " ")}
	case "room-asked":
		ev := powersave.RoomAsked{Job: uint32(p.int(args[0])), Attempt: p.int(args[1]), Name: args[2]}
		if ev.Name == "failed" {
			ev.OfJob = args[3] == "job"
			ev.Name, ev.Trouble, ev.Err = "", powersave.Trouble(strings.Trim(args[3], "-")), strings.Join(args[4:], " ")
			if args[3] == "forbidden" {
				ev.Trouble, ev.Everywhere = powersave.TroubleNone, true
			}
		}
		return ev
	case "rooms":
		var ev powersave.RoomsRead
		for _, a := range args {
			f := strings.SplitN(a, "/", 4)
			room := powersave.Room{Name: f[0], Job: uint32(p.int(f[1])), Attempt: p.int(f[2])}
			state, message, _ := strings.Cut(f[3], "!")
			room.State, room.Message = powersave.RoomState(state), strings.ReplaceAll(message, "_", " ")
			if rest, refused := strings.CutSuffix(state, "-refused"); refused {
				room.State, room.Refused = powersave.RoomState(rest), true
			}
			ev.Rooms = append(ev.Rooms, room)
		}
		return ev
	case "rooms-failed":
		return powersave.RoomsRead{Everywhere: args[0] == "forbidden", Err: strings.Join(args, " ")}
	case "room-dropped":
		return powersave.RoomDropped{Name: args[0], Err: strings.Join(args[1:], " ")}
	case "kubernetes-unread":
		return powersave.KubernetesUnread{Err: strings.Join(args, " ")}
	case "tainted":
		for _, a := range p.taints {
			if a.Host == args[0] && a.Node == args[1] {
				return powersave.HostTainted{TaintHost: a, Err: strings.Join(args[2:], " ")}
			}
		}
		require.FailNow(p.t, "nobody asked for that", args)
	case "wish":
		var ev powersave.WarmWished
		for _, a := range args { // set=nodes:names/for
			set, rest, _ := strings.Cut(a, "=")
			rest, until, _ := strings.Cut(rest, "/")
			nodes, names, _ := strings.Cut(rest, ":")
			w := powersave.WarmWish{NodeSet: set, Nodes: int(p.int(nodes)), Until: p.now.Add(p.duration(until))}
			if names != "" {
				w.Names = slices.Collect(p.hostlist(names).All())
			}
			ev.Wishes = append(ev.Wishes, w)
		}
		return ev
	case "leading":
		return powersave.Leading{Leading: args[0] == "yes", Others: len(args) > 1}
	case "reserved":
		return powersave.UpdateReserved{NodeSet: args[0], Err: strings.Join(args[1:], " ")}
	case "gate-closed":
		return powersave.GateClosed{ID: uint64(p.int(args[0]))}
	}
	require.FailNow(p.t, "unknown command", cmd)
	return nil
}

func (p *player) step(ev powersave.Event) []string {
	var out []string
	switch ev.(type) {
	case powersave.SlurmRead, powersave.SlurmReadFailed:
		p.asked = false
	}
	for _, a := range p.engine.Step(p.now, ev) {
		switch a := a.(type) {
		case powersave.ReadSlurm:
			require.False(p.t, p.asked, "two reads at once")
			p.asked = true
		case powersave.MarkPod:
			if !p.marks {
				continue
			}
		case powersave.ReadBacks:
			if !p.backs {
				continue
			}
		case powersave.GangDone:
			if !p.gangs {
				continue
			}
		case powersave.TaintHost:
			p.taints = append(p.taints, a)
		case powersave.TellJob:
			p.serials[fmt.Sprint("told ", a.Job)] = a.Serial
		case powersave.HoldJob:
			p.serials[fmt.Sprint("held ", a.Job)] = a.Serial
		case powersave.UpdateNodes:
			p.reasons[string(a.Update.State)] = a.Update.Reason
			for _, n := range a.Update.Nodes {
				p.reasons[string(a.Update.State)+" "+n] = a.Update.Reason
			}
		}
		out = append(out, describe(a))
	}
	return out
}

func describe(a powersave.Action) string {
	switch a := a.(type) {
	case powersave.CreatePod:
		s := fmt.Sprintf("create %s set=%s gen=%d request=%s", a.Node, a.NodeSet, a.Generation, a.Request)
		if a.Offering != "" {
			s += " offering=" + a.Offering
		}
		if a.Room != "" {
			s += " room=" + a.Room
		}
		if a.HetJob != 0 {
			s += fmt.Sprintf(" het=%d", a.HetJob)
		}
		return s
	case powersave.AskRoom:
		s := fmt.Sprintf("ask room job=%d attempt=%d", a.Request.Job, a.Request.Attempt)
		for _, set := range a.Request.Sets {
			s += fmt.Sprintf(" %s/%s=%d", set.NodeSet, set.Offering, set.Pods)
		}
		return s
	case powersave.ReadRooms:
		return "read rooms"
	case powersave.DropRoom:
		return "drop room " + a.Name
	case powersave.DeletePod:
		return fmt.Sprintf("delete %s uid=%s: %s", a.Node, a.UID, a.Why)
	case powersave.MarkPod:
		return fmt.Sprintf("mark %s uid=%s busy=%v", a.Node, a.UID, a.Busy)
	case powersave.TaintHost:
		return fmt.Sprintf("taint %s node=%s uid=%s: %s", a.Host, a.Node, a.UID, a.Reason)
	case powersave.UpdateNodes:
		s := "update " + slurmconf.CompressHostlist(a.Update.Nodes)
		if a.Update.State != powersave.StateNone {
			s += " state=" + string(a.Update.State)
		}
		if a.Update.Reason != "" {
			s += fmt.Sprintf(" reason=%q", a.Update.Reason)
		}
		return s
	case powersave.ReadSlurm:
		if len(a.Nodes) == 0 {
			return "read all"
		}
		return "read " + slurmconf.CompressHostlist(a.Nodes)
	case powersave.FloorShort:
		return fmt.Sprintf("floor %s %s: %s", a.NodeSet, a.Why, a.Text)
	case powersave.JobsLost:
		return fmt.Sprintf("jobs lost %s/%s: %s", a.NodeSet, a.Node, a.Why)
	case powersave.FinishRequest:
		return "finish " + a.ID
	case powersave.AnswerGate:
		s := strings.TrimSpace(fmt.Sprintf("gate %d ready=%v %s", a.ID, a.Ready, a.Reason))
		if a.Notify {
			s += " (notify)"
		}
		return s
	case powersave.TellJob:
		s := fmt.Sprintf("tell job %d: %s", a.Job, a.Reason)
		if a.Taken {
			s += " (taken)"
		}
		return s
	case powersave.HoldJob:
		return fmt.Sprintf("hold job %d for %s", a.Job, a.Delay.Round(time.Second))
	case powersave.ReadBacks:
		return "read backs"
	case powersave.BootFailed:
		return fmt.Sprintf("failed %s uid=%s jobs=%v %s", a.Node, a.UID, a.Jobs, a.Verdict)
	case powersave.GangDone:
		return fmt.Sprintf("job %d waits no longer: %s set=%s", a.Job, a.Outcome, a.NodeSet)
	case powersave.BootDone:
		return fmt.Sprintf("booted %s uid=%s jobs=%v", a.Boot.Node, a.Boot.UID, a.Boot.Jobs)
	case powersave.Report:
		return strings.Join(strings.Fields(fmt.Sprintf("report %s %s: %s", []string{"info", "warn", "fault"}[a.Level], a.NodeSet+"/"+a.Node, a.Text)), " ")
	}
	return fmt.Sprintf("%#v", a)
}

func (p *player) status() []string {
	st := p.engine.Status(p.now)
	var out []string
	for _, s := range st.NodeSets {
		out = append(out, fmt.Sprintf("%s: %d nodes, %d up, %d booting, %d ready, %d failed, %d unknown", s.Name, s.Nodes, s.PoweredUp, s.Booting, s.Ready, s.Failed, s.Unknown))
		if s.Unread > 0 || s.Stale != "" {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s: %d not read %s", s.Name, s.Unread, s.Stale)))
		}
		if f := s.Floor; f != nil {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s: floor %d of %d %s %s", s.Name, f.Held, f.Wanted, f.Why, f.Text)))
			if f.Ahead > 0 {
				out = append(out, strings.TrimSpace(fmt.Sprintf("%s: %d for jobs to come %s", s.Name, f.Ahead, f.AheadText)))
			}
		}
	}
	for _, s := range st.NodeSets {
		if u := s.Update; u != nil {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s: %d of %s, %d outdated, most of %s, %d being replaced %s %s", s.Name, u.Updated, u.Revision, u.Outdated, u.Current, u.Replacing, u.Why, u.Text)))
			if r := u.Reserve; r != nil {
				out = append(out, strings.TrimSpace(fmt.Sprintf("%s: reserve %s from %s to %s %s", s.Name, r.Nodes, r.Begin.Sub(epoch), r.End.Sub(epoch), u.Refused)))
			}
		}
	}
	for _, b := range st.Boots {
		out = append(out, strings.TrimSpace(fmt.Sprintf("boot %s %s jobs=%v %s", b.Node, b.Phase, b.Jobs, b.Problem)))
	}
	for _, b := range st.Offs {
		out = append(out, fmt.Sprintf("off %s %s", b.Node, b.Phase))
	}
	for _, o := range st.FinishedOffs {
		after := func(t time.Time) string {
			if t.IsZero() {
				return "-"
			}
			return t.Sub(o.Times.Accepted).String()
		}
		out = append(out, fmt.Sprintf("was off %s uid=%s %s: confirmed %s, pod gone %s, freed %s, finished %s",
			o.Node, o.UID, o.Why, after(o.Times.Confirmed), after(o.Times.PodGone), after(o.Times.Freed), after(o.Times.Finished)))
	}
	return append(out, fmt.Sprintf("%d requests, %d gates, %d pods", st.Requests, st.Gates, st.Pods))
}

// every is a schedule that begins at each multiple of a time since epoch, but not at epoch itself.
type every time.Duration

func (d every) Next(t time.Time) time.Time {
	n := max(t.Sub(epoch)/time.Duration(d)+1, 1)
	return epoch.Add(n * time.Duration(d))
}

// once is a schedule with one beginning.
type once time.Time

func (o once) Next(t time.Time) time.Time {
	if time.Time(o).After(t) {
		return time.Time(o)
	}
	return time.Time{}
}

func (p *player) pod(f []string) powersave.Pod {
	pod := powersave.Pod{Node: f[0], UID: f[1], Generation: p.int(f[2]), Phase: powersave.PodPhase(f[3])}
	if len(f) > 4 {
		pod.Reason = strings.Trim(f[4], "-")
	}
	if len(f) > 5 {
		pod.Trouble = powersave.Trouble(strings.Trim(f[5], "-"))
	}
	for _, more := range f[min(len(f), 6):] {
		if offering, ok := strings.CutPrefix(more, "on="); ok {
			pod.Offering = offering
			continue
		}
		if room, ok := strings.CutPrefix(more, "room="); ok {
			pod.Room = room
			continue
		}
		if more == "busy" {
			pod.Busy = true
			continue
		}
		if request, ok := strings.CutPrefix(more, "request="); ok {
			pod.Request = request
			continue
		}
		if host, ok := strings.CutPrefix(more, "host="); ok {
			pod.Host = host
			continue
		}
		if revision, ok := strings.CutPrefix(more, "rev="); ok {
			pod.Revision = revision
			continue
		}
		if ends, ok := strings.CutPrefix(more, "ends="); ok {
			pod.Ends = epoch.Add(p.duration(ends))
			continue
		}
		require.Equal(p.t, "scale-up", more)
		pod.ScaleUp = p.now
	}
	return pod
}

func (p *player) hostlist(s string) slurmconf.Hostlist {
	h, err := slurmconf.ParseHostlist(s)
	require.NoError(p.t, err)
	return h
}

func (p *player) int(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	require.NoError(p.t, err)
	return n
}

func (p *player) duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	require.NoError(p.t, err)
	return d
}
