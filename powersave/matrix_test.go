package powersave_test

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/slurmconf"
)

const matrixFile = "testdata/matrix.md"

// matrixRow says what is done about the combinations it fits: at the first sighting, at a second one that comes too
// early, and from then on.
type matrixRow struct {
	slurm, pods []string // patterns
	want        [3]string
	used        bool
}

type situation struct {
	name   string
	known  bool // slurmctld has the node
	set    bool // a NodeSet names it
	state  powersave.NodeState
	reason string
}

// matrixPods are the second table; "other" pods have not the UID that Slurm knows.
var matrixPods = func() []string {
	pods := []string{"none", "by hand", "ready, host cordoned", "ready, host silent", "lingering, terminating"}
	for _, phase := range []string{"pending", "scheduled", "running", "ready", "failed", "terminating", "unknown"} {
		pods = append(pods, phase, "other "+phase)
	}
	return pods
}()

// TestMatrix lets a new engine see every combination of what Slurm shows and what pod there is, and compares what it asks
// for with testdata/matrix.md.
func TestMatrix(t *testing.T) {
	situations, rows := readMatrix(t)
	for _, s := range situations {
		for _, pod := range matrixPods {
			row := find(rows, s, pod)
			if !assert.NotNil(t, row, "no row for %q with pod %q", s.name, pod) {
				continue
			}
			row.used = true
			w := newMatrixWorld(t, s, pod)
			w.run(2 * time.Minute)
			assert.Equal(t, row.want, w.did(), "%q with pod %q", s.name, pod)
		}
	}
	for _, r := range rows {
		assert.True(t, r.used, "no combination needs the row %v | %v", r.slurm, r.pods)
		for i, done := range r.want[:2] {
			assert.NotRegexp(t, takesDown, done, "sighting %d of %v | %v", i+1, r.slurm, r.pods)
		}
	}
}

// takesDown are the words for what hurts whoever still uses the node or its pod. Powering a node down that is idle does not: slurmctld
// waits for jobs that came meanwhile.
var takesDown = regexp.MustCompile(`remove|force|free`)

// combination says what a state counts as that shows a word of the first two, and none of the third.
type combination struct {
	shows, and, not powersave.NodeState
	as              string
	used            bool
}

// TestMatrixCombinations lets a new engine see every base state with every pair of the other words, and compares what it asks for with what
// it does about the situation that matrix.md says it counts as.
func TestMatrixCombinations(t *testing.T) {
	situations, rows := readMatrix(t)
	combinations := readCombinations(t, situations)
	bases, words := stateWords(t)
	for _, b := range bases {
		for i, x := range words {
			for _, y := range words[i:] {
				s := situation{known: true, set: true, state: b | x | y | powersave.NodeCloud}
				i := slices.IndexFunc(combinations, func(c *combination) bool { return c.fits(s.state) })
				if !assert.GreaterOrEqual(t, i, 0, "no row for %s", s.state) {
					continue
				}
				combinations[i].used = true
				if s.name = combinations[i].as; s.state.Any(powersave.NodeDrain | powersave.NodeFail | powersave.NodeDown) {
					s.reason = "bad disk"
				}
				for _, pod := range matrixPods {
					w := newMatrixWorld(t, s, pod)
					w.run(2 * time.Minute)
					assert.Equal(t, find(rows, s, pod).want, w.did(), "%s counts as %q, with pod %q", s.state, s.name, pod)
				}
			}
		}
	}
	for _, c := range combinations {
		assert.True(t, c.used, "no state needs the row for %s with %s", c.shows, c.and)
	}
}

// stateWords are slurmctld's base states, and the other words of a node's state. CLOUD goes without saying.
func stateWords(t *testing.T) (bases, words []powersave.NodeState) {
	t.Helper()
	const base = powersave.NodeIdle | powersave.NodeAllocated | powersave.NodeMixed | powersave.NodeDown | powersave.NodeFuture | powersave.NodeUnknown | powersave.NodeError
	for i := range 64 {
		switch word := powersave.NodeState(1) << i; {
		case word.String() == "", word == powersave.NodeCloud:
		case base.Any(word):
			bases = append(bases, word)
		default:
			words = append(words, word)
		}
	}
	require.Len(t, bases, 7)
	return bases, words
}

func readCombinations(t *testing.T, situations []situation) (all []*combination) {
	t.Helper()
	for cells := range matrixCells(t, "Combinations") {
		require.Len(t, cells, 4)
		all = append(all, readCombination(t, situations, cells))
	}
	return all
}

func readCombination(t *testing.T, situations []situation, cells []string) *combination {
	t.Helper()
	require.True(t, slices.ContainsFunc(situations, func(s situation) bool { return s.name == cells[3] }), "no situation %q", cells[3])
	states := func(cell string) powersave.NodeState {
		if cell == "*" {
			return ^powersave.NodeState(0)
		}
		return powersave.ParseNodeState(strings.Fields(cell))
	}
	return &combination{shows: states(cells[0]), and: states(cells[1]), not: states(cells[2]), as: cells[3]}
}

func (c *combination) fits(s powersave.NodeState) bool {
	return s.Any(c.shows) && s.Any(c.and) && !s.Any(c.not)
}

// matrixCells are the rows of the table of a section, without its heading.
func matrixCells(t *testing.T, section string) iter.Seq[[]string] {
	t.Helper()
	text, err := os.ReadFile(matrixFile)
	require.NoError(t, err)
	_, text, found := bytes.Cut(text, []byte("\n## "+section+"\n"))
	require.True(t, found, section)
	text, _, _ = bytes.Cut(text, []byte("\n## "))
	_, text, found = bytes.Cut(text, []byte("|---|"))
	require.True(t, found, section)
	return func(yield func([]string) bool) {
		for line := range strings.Lines(string(text)) {
			cells, ok := strings.CutPrefix(strings.TrimSpace(line), "| ")
			if !ok {
				continue
			}
			row := strings.Split(strings.TrimSuffix(cells, "|"), "|")
			for i := range row {
				row[i] = strings.TrimSpace(row[i])
			}
			if !yield(row) {
				return
			}
		}
	}
}

// TestMatrixUnread lets the engine see the same combinations while something cannot be read, or it is not the one to act.
func TestMatrixUnread(t *testing.T) {
	situations, _ := readMatrix(t)
	for name, tt := range map[string]struct {
		blind func(w *matrixWorld)
		want  string // at most
	}{
		"pods never read":         {func(w *matrixWorld) { w.noPods = true }, `^$`},
		"NodeSets never read":     {func(w *matrixWorld) { w.noSets = true }, `^$`},
		"Slurm never read":        {func(w *matrixWorld) { w.answers = -1 }, `^$`},
		"Slurm read in part only": {func(w *matrixWorld) { w.incomplete = true }, `^(adopt|clear|boot|drain|undrain|resume|off|mark| )*$`},
		"Slurm read once":         {func(w *matrixWorld) { w.answers = 1 }, `^(adopt|clear|boot|drain|undrain|resume|off|mark|say| )*$`},
		"Kubernetes read once":    {func(w *matrixWorld) { w.kubernetesFails = true }, `^(adopt|clear|boot|drain|undrain|resume|mark|say| )*$`},
		"another bridge leads": {func(w *matrixWorld) {
			c := matrixConfig
			c.Alone = false
			w.engine = powersave.New(c)
		}, `^(adopt|say)?$`},
		"NodeSets and pods unread": {func(w *matrixWorld) { w.noPods, w.noSets = true, true }, `^$`},
	} {
		t.Run(name, func(t *testing.T) {
			most := regexp.MustCompile(tt.want)
			for _, s := range situations {
				for _, pod := range matrixPods {
					w := newMatrixWorld(t, s, pod)
					tt.blind(w)
					w.run(30 * time.Second)
					did := w.did()
					assert.Regexp(t, most, strings.TrimSpace(strings.Join(did[:], " ")), "%q with pod %q", s.name, pod)
				}
			}
		})
	}
}

func readMatrix(t *testing.T) (situations []situation, rows []*matrixRow) {
	t.Helper()
	words := powersave.NodeState(0)
	for cells := range matrixCells(t, "What Slurm shows") {
		require.Len(t, cells, 3, cells)
		s := situation{name: cells[0], known: cells[1] != "", reason: cells[2]}
		if s.known {
			s.state = powersave.ParseNodeState(strings.Split(cells[1], "+")) | powersave.NodeCloud
		}
		words |= s.state
		foreign := s
		foreign.name = "no NodeSet: " + s.name
		s.set = true
		situations = append(situations, s, foreign)
	}
	for cells := range matrixCells(t, "Rows") {
		require.Len(t, cells, 6, cells)
		require.NotEmpty(t, cells[5], "a row without a reason: %s", cells)
		r := &matrixRow{slurm: strings.Split(cells[0], "; "), pods: strings.Split(cells[1], "; ")}
		for i, done := range cells[2:5] {
			r.want[i] = strings.Trim(done, "-")
		}
		rows = append(rows, r)
	}
	require.NotEmpty(t, rows)
	for i := range 64 {
		word := powersave.NodeState(1) << i
		if word.String() != "" {
			assert.True(t, words.Has(word), "no situation shows %s", word)
		}
	}
	return situations, rows
}

func find(rows []*matrixRow, s situation, pod string) *matrixRow {
	fits := func(patterns []string, name string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			ok, err := path.Match(p, name)
			return err == nil && ok
		})
	}
	for _, r := range rows {
		if fits(r.slurm, s.name) && fits(r.pods, pod) {
			return r
		}
	}
	return nil
}

// matrixWorld is one node, and does at once what the engine asks for.
type matrixWorld struct {
	t      *testing.T
	engine *powersave.Engine
	now    time.Time
	situation
	instance string
	pod      *powersave.Pod
	reads    []powersave.ReadSlurm // to be answered
	events   []powersave.Event     // answers to the rest
	words    [3][]string
	warned   [3]bool
	over     bool // what follows is SuspendProgram's

	noPods, noSets, incomplete, kubernetesFails bool
	answers                                     int // how many reads are answered; 0: all, less: none
	answered                                    int
}

const matrixNode = "cpu-0"

var matrixConfig = powersave.Config{
	Alone:    true,
	PollIdle: 4 * time.Second, PollFast: 2 * time.Second, PollSlow: 2 * time.Second, BadHardware: regexp.MustCompile("NHC"),
}

func newMatrixWorld(t *testing.T, s situation, pod string) *matrixWorld {
	w := &matrixWorld{t: t, now: epoch, situation: s}
	w.engine = powersave.New(matrixConfig)
	pod, lingers := strings.CutPrefix(pod, "lingering, ")
	phase, host, onHost := strings.Cut(pod, ", host ")
	phase, other := strings.CutPrefix(phase, "other ")
	if s.known && !s.state.Any(powersave.NodePoweredDown|powersave.NodePoweringUp|powersave.NodeFuture) && pod != "by hand" {
		w.instance = "u0"
	}
	if pod == "none" || pod == "by hand" {
		return w
	}
	w.pod = &powersave.Pod{Node: matrixNode, UID: "u0", Generation: 1, Phase: powersave.PodPhase(phase), Host: "h1", Created: epoch}
	if other {
		w.pod.UID = "u1"
	}
	if onHost {
		w.pod.Host = "h-" + host
	}
	if lingers {
		w.pod.Ends = epoch.Add(time.Hour)
	}
	switch w.pod.Phase {
	case powersave.PodPending:
		w.pod.Host = ""
	case powersave.PodFailed:
		w.pod.Reason, w.pod.Trouble = "Error", powersave.TroubleCrash
	default:
	}
	return w
}

// run lets the engine look for d.
func (w *matrixWorld) run(d time.Duration) {
	set := powersave.NodeSet{Name: "cpu", Nodes: slurmconf.NewHostlist("cpu-1")}
	if w.set {
		set.Nodes = slurmconf.NewHostlist(matrixNode, "cpu-1")
	}
	if !w.noSets {
		w.step(powersave.NodeSetsRead{NodeSets: []powersave.NodeSet{set}})
	}
	if !w.noPods {
		var pods []powersave.Pod
		if w.pod != nil {
			pods = append(pods, *w.pod)
		}
		w.step(powersave.PodsRead{Pods: pods})
	}
	w.step(powersave.HostsRead{Hosts: []powersave.Host{
		{Name: "h1"}, {Name: "h-cordoned", Trouble: powersave.HostCordoned}, {Name: "h-silent", Trouble: powersave.HostNotReady},
	}})
	for !w.over && w.now.Before(epoch.Add(d)) {
		w.answer()
		next := w.engine.NextWake()
		if next.IsZero() {
			break
		}
		if next.After(w.now) {
			w.now = next
		} else {
			w.now = w.now.Add(time.Millisecond)
		}
		w.step(powersave.Tick{})
	}
}

// answer gives what the engine waits for; reads last.
func (w *matrixWorld) answer() {
	for len(w.events)+len(w.reads) > 0 && !w.over {
		if len(w.events) > 0 {
			ev := w.events[0]
			w.events = w.events[1:]
			w.step(ev)
			continue
		}
		w.reads = nil
		w.now = w.now.Add(100 * time.Millisecond)
		if w.answered++; w.answers != 0 && w.answered > w.answers {
			w.step(powersave.SlurmReadFailed{Err: "away"})
			continue
		}
		ev := powersave.SlurmRead{Complete: !w.incomplete, Nodes: []powersave.SlurmNode{{Name: "cpu-1", State: powersave.NodeIdle | powersave.NodePoweredDown}}}
		if w.known {
			ev.Nodes = append(ev.Nodes, powersave.SlurmNode{Name: matrixNode, State: w.state, Reason: w.reason, InstanceID: w.instance})
		}
		w.step(ev)
		if w.kubernetesFails && w.answered == 1 { // what it asked for before does not count
			w.words, w.warned, w.over = [3][]string{}, [3]bool{}, false
			w.step(powersave.KubernetesUnread{Err: "away"})
		}
	}
}

func (w *matrixWorld) step(ev powersave.Event) {
	sighting := 2
	switch since := w.now.Sub(epoch); {
	case since < time.Second:
		sighting = 0
	case since < 10*time.Second:
		sighting = 1
	}
	say := func(word string) {
		if !slices.Contains(w.words[sighting], word) {
			w.words[sighting] = append(w.words[sighting], word)
		}
	}
	made := false
	for _, a := range w.engine.Step(w.now, ev) {
		switch a := a.(type) {
		case powersave.ReadSlurm:
			w.reads = append(w.reads, a)
		case powersave.Report:
			w.warned[sighting] = w.warned[sighting] || a.Level > powersave.Info && a.Node != ""
		case powersave.CreatePod:
			say("boot")
			made = true
			w.pod = &powersave.Pod{Node: a.Node, UID: "u9", Generation: a.Generation, Phase: powersave.PodPending, Created: w.now}
			w.events = append(w.events, powersave.PodCreated{Node: a.Node, UID: "u9", Generation: a.Generation})
		case powersave.DeletePod:
			require.Equal(w.t, w.pod.UID, a.UID)
			word := "remove"
			if w.pod.Phase == powersave.PodFailed && w.state.Any(powersave.NodePoweringUp) {
				word = "clear"
			}
			say(word)
			w.pod = nil
			w.events = append(w.events, powersave.PodDeleted{Node: a.Node, UID: a.UID}, powersave.PodGone{Node: a.Node, UID: a.UID})
		case powersave.UpdateNodes:
			require.Equal(w.t, []string{matrixNode}, a.Update.Nodes)
			say(w.update(a.Update))
			w.events = append(w.events, powersave.NodesUpdated{Update: a.Update})
		case powersave.TaintHost:
			say("mark")
			w.events = append(w.events, powersave.HostTainted{TaintHost: a})
		default:
		}
	}
	st := w.engine.Status(w.now)
	if len(st.Boots) > 0 && !made && !slices.Contains(slices.Concat(w.words[:]...), "boot") && !slices.Contains(slices.Concat(w.words[:]...), "adopt") {
		w.words[sighting] = slices.Insert(w.words[sighting], 0, "adopt")
	}
	if len(st.Offs) > 0 && !slices.Contains(w.words[sighting], "remove") {
		say("wait")
	}
}

// update does what slurmctld does, and says what that is.
func (w *matrixWorld) update(u powersave.NodeUpdate) string {
	if u.Reason != "" {
		w.reason = u.Reason
	}
	switch u.State {
	case powersave.StateDrain:
		w.state |= powersave.NodeDrain
		return "drain"
	case powersave.StateResume:
		word := "resume"
		if w.state.Any(powersave.NodePoweringDown) {
			word = "free"
			w.state |= powersave.NodePoweredDown
		}
		w.state &^= powersave.NodeDrain | powersave.NodeFail | powersave.NodePoweringDown
		if w.state.Any(powersave.NodeDown) {
			w.state = w.state&^powersave.NodeDown | powersave.NodeIdle
		}
		w.reason = ""
		return word
	case powersave.StateUndrain:
		w.state &^= powersave.NodeDrain
		w.reason = ""
		return "undrain"
	case powersave.StatePowerDown:
		w.over = true
		return "off"
	case powersave.StatePowerDownForce:
		w.over = true
		return "force"
	default:
		return fmt.Sprint(u)
	}
}

// did is what was asked for at each sighting. A warning counts where nothing else was done.
func (w *matrixWorld) did() (did [3]string) {
	for i, words := range w.words {
		if len(words) > 1 {
			words = slices.DeleteFunc(words, func(word string) bool { return word == "wait" })
		}
		if did[i] = strings.Join(words, " "); did[i] == "" && w.warned[i] {
			did[i] = "say"
		}
	}
	return did
}
