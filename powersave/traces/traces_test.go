package traces

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/history"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/powersave/traces/tracestest"
	"github.com/slurmtide/slurmtide/slurmconf"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func ms(n int) time.Time { return noon.Add(time.Duration(n) * time.Millisecond) }

func list(t *testing.T, s string) slurmconf.Hostlist {
	nodes, err := slurmconf.ParseHostlist(s)
	require.NoError(t, err)
	return nodes
}

// clean has no setting of the environment of who runs the tests.
func clean(t *testing.T) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME", "OTEL_TRACES_SAMPLER"} {
		t.Setenv(name, "")
	}
}

// told feeds a recorder, and traces with what that makes of it, at so many milliseconds after noon.
type told struct {
	t         *testing.T
	collector *tracestest.Collector
	*history.Recorder
	*Traces
	entries []history.Entry
	dropped int
	stop    func()
}

func newTold(t *testing.T) *told {
	clean(t)
	r := &told{t: t, collector: tracestest.Start(t)}
	r.start(nil)
	return r
}

func (r *told) start(past []history.Entry) {
	r.t.Helper()
	traces, err := New(r.t.Context(), Config{
		Endpoint: r.collector.Server.URL, Cluster: "tide", Namespace: "slurm", Instance: "host_1", Version: "v1.2.3", Past: past,
		Log: slog.New(slog.DiscardHandler), Dropped: func(n int) { r.dropped += n },
	})
	require.NoError(r.t, err)
	r.Traces, r.Recorder = traces, history.NewRecorder()
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- traces.Run(ctx) }()
	r.stop = func() {
		cancel()
		require.NoError(r.t, <-done)
	}
}

// restart begins anew with what a file has kept.
func (r *told) restart() {
	r.t.Helper()
	r.stop()
	var past []history.Entry
	for _, e := range r.entries {
		line, err := json.Marshal(e)
		require.NoError(r.t, err)
		var again history.Entry
		require.NoError(r.t, json.Unmarshal(line, &again))
		past = append(past, again)
	}
	r.start(past)
}

func (r *told) at(n int, ev powersave.Event, actions ...powersave.Action) {
	entries := r.Step(ms(n), ev, actions)
	r.entries = append(r.entries, entries...)
	r.Add(entries...)
	for _, a := range actions {
		if f, is := a.(powersave.FinishRequest); is {
			r.Finished(ms(n), f.ID)
		}
	}
}

func (r *told) resume(n int, id, nodes string, jobs ...powersave.Job) {
	r.accept(n, n-15, id, nodes, jobs...)
}

func (r *told) accept(n, started int, id, nodes string, jobs ...powersave.Job) {
	r.at(n, powersave.RequestAccepted{Request: powersave.Request{ID: id, Kind: spool.KindResume, Started: ms(started), Nodes: list(r.t, nodes), Jobs: jobs}})
}

func (r *told) create(n int, offering, node string) {
	r.at(n, powersave.Tick{}, powersave.CreatePod{Node: node, NodeSet: "cpu", Offering: offering, Request: "r1", Job: 7})
}

func (r *told) pod(n int, request, offering, node, uid, host string, phase powersave.PodPhase) {
	r.at(n, powersave.PodSeen{Pod: powersave.Pod{Node: node, NodeSet: "cpu", UID: uid, Request: request, Offering: offering, Host: host, Phase: phase}})
}

func done(node, uid, host string) powersave.BootDone {
	return powersave.BootDone{Boot: powersave.Boot{Node: node, NodeSet: "cpu", Request: "r1", Jobs: []uint32{7}, UID: uid, Host: host}}
}

func (r *told) job(nodes string) powersave.Job { return powersave.Job{ID: 7, Nodes: list(r.t, nodes)} }

// show ends the bridge, and compares what the collector has with a file.
func (r *told) show() {
	r.t.Helper()
	r.stop()
	assert.Zero(r.t, r.dropped)
	golden.Compare(r.t, "testdata/"+strings.ToLower(r.t.Name())+".txt", r.collector.Text(noon))
	for _, s := range r.collector.Spans() {
		assert.Equal(r.t, r.TraceID("r1"), s.Trace, s.Name)
	}
}

func TestGoodBoots(t *testing.T) {
	r := newTold(t)
	r.at(0, powersave.GateOpened{ID: 1, JobID: 7, Nodes: list(t, "cpu-[0-1]"), Attempt: 1})
	r.resume(430, "r1", "cpu-[0-1]", r.job("cpu-[0-1]"))
	for i, node := range []string{"cpu-0", "cpu-1"} {
		n := 430 + 100*i
		r.create(n, "spot", node)
		r.at(n+20, powersave.PodCreated{Node: node, UID: "uid-" + node})
		r.pod(n+25, "r1", "spot", node, "uid-"+node, "", powersave.PodPending)
		r.pod(n+50, "r1", "spot", node, "uid-"+node, "host-a", powersave.PodScheduled)
		r.pod(n+800, "r1", "spot", node, "uid-"+node, "host-a", powersave.PodRunning)
	}
	r.at(1630, powersave.SlurmRead{}, done("cpu-0", "uid-cpu-0", "host-a"))
	r.at(1700, powersave.SlurmRead{}, done("cpu-1", "uid-cpu-1", "host-a"), powersave.AnswerGate{ID: 1, Ready: true}, powersave.FinishRequest{ID: "r1"})
	r.show()
	assert.Equal(t, map[string]string{
		"service.name": "slurmtide-bridge", "service.version": "v1.2.3", "service.instance.id": "host_1", "slurm.cluster.name": "tide", "k8s.namespace.name": "slurm",
		"telemetry.sdk.language": "go", "telemetry.sdk.name": "opentelemetry", "telemetry.sdk.version": "1.43.0",
	}, r.collector.Resource())
	assert.Equal(t, "82f3e9c695dc6b8d1b11818d5701919e", r.TraceID("r1"), "what sha256sum makes of it, as documented")
	assert.Equal(t, "/v1/traces", r.collector.Requests()[0].URL.Path)
	assert.Empty(t, r.open)
	assert.Empty(t, r.gates)
}

var full = powersave.Verdict{Trouble: powersave.TroubleCapacity, Reason: "0/5 nodes are available: 5 are tainted"}

// TestFailedBoot gives the job back for one of its nodes, which had tried one offering with a pod, and another without.
func TestFailedBoot(t *testing.T) {
	r := newTold(t)
	r.at(0, powersave.GateOpened{ID: 1, JobID: 7, Nodes: list(t, "cpu-[0-1]"), Attempt: 1})
	r.resume(430, "r1", "cpu-[0-1]", r.job("cpu-[0-1]"))
	r.create(440, "spot", "cpu-0")
	r.create(440, "spot", "cpu-1")
	r.pod(460, "r1", "spot", "cpu-0", "u0", "", powersave.PodPending)
	r.pod(465, "r1", "spot", "cpu-1", "u1", "", powersave.PodPending)
	r.pod(480, "r1", "spot", "cpu-0", "u0", "host-a", powersave.PodScheduled)
	elsewhere := powersave.Report{Node: "cpu-1", NodeSet: "cpu", Request: "r1", Text: full.String() + ": trying another offering"}
	r.at(10_900, powersave.Tick{}, elsewhere)
	r.at(11_000, powersave.Tick{}, powersave.DeletePod{Node: "cpu-1", UID: "u1", Why: "no room on its offering"})
	r.at(11_500, powersave.PodGone{Node: "cpu-1", UID: "u1"})
	r.create(11_500, "reserved", "cpu-1")
	r.at(12_500, powersave.Tick{}, elsewhere, powersave.CreatePod{Node: "cpu-1", NodeSet: "cpu", Offering: "on-demand", Request: "r1", Job: 7})
	r.pod(12_520, "r1", "on-demand", "cpu-1", "u2", "", powersave.PodPending)
	r.at(23_000, powersave.Tick{}, powersave.BootFailed{Node: "cpu-1", NodeSet: "cpu", Offering: "on-demand", UID: "u2", Request: "r1", Jobs: []uint32{7}, Verdict: full},
		powersave.TellJob{Job: 7, Reason: powersave.ReasonPrefix + full.String()})
	r.at(23_040, powersave.JobTold{Job: 7, Times: 2, Attempt: 2})
	r.at(23_100, powersave.NodesUpdated{Update: powersave.NodeUpdate{Nodes: []string{"cpu-0", "cpu-1"}, State: powersave.StatePowerDownForce, Reason: "slurmtide: " + full.String()}},
		powersave.AnswerGate{ID: 1, Reason: full.String()}, powersave.FinishRequest{ID: "r1"})
	r.show()
}

// TestSecondOffering has it work there, after the pod of an earlier boot has gone.
func TestSecondOffering(t *testing.T) {
	r := newTold(t)
	r.resume(430, "r1", "cpu-0", r.job("cpu-0"))
	r.at(500, powersave.Tick{}, powersave.DeletePod{Node: "cpu-0", UID: "u-old", Why: "pod belongs to an earlier boot"})
	r.at(1500, powersave.PodGone{Node: "cpu-0", UID: "u-old"})
	r.create(1500, "spot", "cpu-0")
	r.pod(1600, "r1", "spot", "cpu-0", "u0", "", powersave.PodPending)
	r.at(12_000, powersave.Tick{}, powersave.Report{Node: "cpu-0", NodeSet: "cpu", Request: "r1", Text: full.String() + ": trying another offering"},
		powersave.DeletePod{Node: "cpu-0", UID: "u0", Why: "no room on its offering"})
	r.at(12_700, powersave.PodGone{Node: "cpu-0", UID: "u0"})
	r.create(13_000, "on-demand", "cpu-0")
	r.pod(13_100, "r1", "on-demand", "cpu-0", "u1", "", powersave.PodPending)
	r.pod(13_200, "r1", "on-demand", "cpu-0", "u1", "host-b", powersave.PodScheduled)
	r.at(14_000, powersave.SlurmRead{}, done("cpu-0", "u1", "host-b"), powersave.FinishRequest{ID: "r1"})
	r.pod(14_700, "r1", "on-demand", "cpu-0", "u1", "host-b", powersave.PodRunning) // told late
	r.show()
}

// TestBridgeStartedAnew goes on with a boot where the bridge before has left it, and tells of no boot twice.
func TestBridgeStartedAnew(t *testing.T) {
	r := newTold(t)
	r.at(0, powersave.GateOpened{ID: 1, JobID: 7, Nodes: list(t, "cpu-[0-1]"), Attempt: 1})
	r.resume(430, "r1", "cpu-[0-1]", r.job("cpu-[0-1]"))
	for _, node := range []string{"cpu-0", "cpu-1"} {
		r.create(440, "", node)
		r.pod(460, "r1", "", node, "uid-"+node, "host-a", powersave.PodScheduled)
	}
	r.pod(900, "r1", "", "cpu-0", "uid-cpu-0", "host-a", powersave.PodRunning)
	r.at(1000, powersave.SlurmRead{}, done("cpu-0", "uid-cpu-0", "host-a"))
	r.restart()
	require.Len(t, r.collector.Spans(), 6, "the boot that has ended is sent when the bridge ends")
	r.accept(5000, 415, "r1", "cpu-[0-1]", r.job("cpu-[0-1]"))
	r.pod(5010, "r1", "", "cpu-1", "uid-cpu-1", "host-a", powersave.PodRunning)
	r.at(5020, powersave.SlurmRead{}, done("cpu-0", "uid-cpu-0", "host-a"))
	r.at(5030, powersave.SlurmRead{}, done("cpu-1", "uid-cpu-1", "host-a"), powersave.AnswerGate{ID: 1, Ready: true}, powersave.FinishRequest{ID: "r1"})
	r.show()
}

// TestGateAfterTheEnd: gates that are answered when the last request for their job is finished belong to it; when the job starts once more they do not.
func TestGateAfterTheEnd(t *testing.T) {
	r := newTold(t)
	r.at(0, powersave.GateOpened{ID: 1, JobID: 7, Nodes: list(t, "cpu-0"), Attempt: 1})
	r.resume(430, "r1", "cpu-0", r.job("cpu-0"))
	r.at(1000, powersave.SlurmRead{}, done("cpu-0", "u", "h"), powersave.FinishRequest{ID: "r1"})
	r.at(1020, powersave.SlurmRead{}, powersave.AnswerGate{ID: 1, Ready: true})
	r.at(5000, powersave.GateOpened{ID: 2, JobID: 7, Nodes: list(t, "cpu-0"), Attempt: 2})
	r.at(6000, powersave.SlurmRead{}, powersave.AnswerGate{ID: 2, Ready: true})
	r.stop()
	var gates, resumes []tracestest.Span
	for _, s := range r.collector.Spans() {
		switch s.Name {
		case "gate":
			gates = append(gates, s)
		case "resume":
			resumes = append(resumes, s)
		}
	}
	require.Len(t, gates, 1)
	require.Len(t, resumes, 1)
	assert.Equal(t, []time.Time{noon, ms(1020)}, []time.Time{gates[0].Start.UTC(), gates[0].End.UTC()})
	assert.Equal(t, []string{r.TraceID("r1"), resumes[0].ID}, []string{gates[0].Trace, gates[0].Parent})
}

// TestNamesOfNodes: whatever nodes are called, each span has an ID of its own.
func TestNamesOfNodes(t *testing.T) {
	r := newTold(t)
	nodes := []string{"resume", "gate", "boot", "0"}
	r.at(0, powersave.GateOpened{ID: 1, JobID: 0, Nodes: list(t, "gate"), Attempt: 1})
	r.resume(430, "r1", strings.Join(nodes, ","), powersave.Job{ID: 0, Nodes: list(t, "gate")}, powersave.Job{ID: 1, Nodes: list(t, "gate")})
	r.at(440, powersave.GateOpened{ID: 2, JobID: 1, Nodes: list(t, "gate"), Attempt: 1})
	for _, node := range nodes {
		r.pod(500, "r1", "", node, "u-"+node, "host-a", powersave.PodRunning)
		r.at(1000, powersave.SlurmRead{}, done(node, "u-"+node, "host-a"))
	}
	r.at(1100, powersave.SlurmRead{}, powersave.AnswerGate{ID: 1, Ready: true}, powersave.AnswerGate{ID: 2, Ready: true}, powersave.FinishRequest{ID: "r1"})
	r.stop()
	ids := map[string]string{}
	for _, s := range r.collector.Spans() {
		assert.Empty(t, ids[s.ID], "%s", s.Name)
		ids[s.ID] = s.Name
	}
	assert.Len(t, ids, 1+2+4+4*3)
}

// TestClockSteps has the clock put back by half a minute between the request and the rest: no span ends before it begins, which collectors take for centuries.
func TestClockSteps(t *testing.T) {
	r := newTold(t)
	r.at(30_000, powersave.GateOpened{ID: 1, JobID: 7, Nodes: list(t, "cpu-0"), Attempt: 1})
	r.accept(1000, 31_000, "r1", "cpu-0", r.job("cpu-0"))
	r.pod(1200, "r1", "", "cpu-0", "u0", "host-a", powersave.PodRunning)
	r.at(2000, powersave.SlurmRead{}, done("cpu-0", "u0", "host-a"), powersave.AnswerGate{ID: 1, Ready: true}, powersave.FinishRequest{ID: "r1"})
	r.show()
	for _, span := range r.collector.Spans() {
		assert.False(t, span.End.Before(span.Start), span.Name)
	}
}

// TestGivenUp ends what nothing else has ended with its request, and says what was said of it last.
func TestGivenUp(t *testing.T) {
	r := newTold(t)
	r.resume(430, "r1", "cpu-[0-1]")
	r.create(440, "", "cpu-0")
	r.at(600, powersave.Tick{}, powersave.Report{Node: "cpu-1", Request: "r1", Text: "Slurm shows IDLE+POWERED_DOWN: the boot is given up"})
	r.at(700, powersave.RequestAccepted{Request: powersave.Request{ID: "s1", Kind: spool.KindSuspend, Started: ms(690), Nodes: list(t, "cpu-0")}}, powersave.FinishRequest{ID: "r1"})
	r.at(800, powersave.Tick{}, powersave.FinishRequest{ID: "r1"}, powersave.FinishRequest{ID: "s1"})
	r.show()
}

// TestNothingIsKept has many requests come and go: only the newest are remembered, for what is told of them late.
func TestNothingIsKept(t *testing.T) {
	r := newTold(t)
	boot := func(n int, id string) {
		r.resume(n, id, "cpu-[0-9]", powersave.Job{ID: uint32(n), Nodes: list(t, "cpu-0")})
		for node := range list(t, "cpu-[0-9]").All() {
			r.pod(n+10, id, "", node, "uid-"+id, "host-a", powersave.PodRunning)
			r.at(n+20, powersave.SlurmRead{}, powersave.BootDone{Boot: powersave.Boot{Node: node, Request: id, UID: "uid-" + id}})
		}
		r.at(n+30, powersave.Tick{}, powersave.FinishRequest{ID: id})
	}
	boot(0, "r1")
	boot(1000, "r2")
	r.restart() // r1 and r2 are not accepted again: they were finished
	assert.Len(t, r.past, 20)
	for i := range 30 {
		boot(60_000+i*60_000, "later"+string(rune('A'+i)))
	}
	r.stop()
	assert.Empty(t, r.past)
	assert.LessOrEqual(t, len(r.ended), 12)
	assert.LessOrEqual(t, len(r.jobs), 12)
	assert.Len(t, r.collector.Spans(), 32*(1+10*4), "requests, boots and three phases of each")
}

func TestSampler(t *testing.T) {
	clean(t)
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	r := &told{t: t, collector: tracestest.Start(t)}
	r.start(nil)
	r.at(0, powersave.GateOpened{ID: 1, JobID: 7, Nodes: list(t, "cpu-0"), Attempt: 1})
	r.resume(430, "r1", "cpu-0", r.job("cpu-0"))
	r.at(1000, powersave.SlurmRead{}, done("cpu-0", "u", "h"), powersave.AnswerGate{ID: 1, Ready: true}, powersave.FinishRequest{ID: "r1"})
	r.stop()
	assert.Empty(t, r.collector.Requests())
	assert.Zero(t, r.dropped)
}
