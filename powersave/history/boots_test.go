package history

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
)

// TestBootThatTriedOthers waits for the pod of an earlier boot to go, leaves an offering on which its pod found no host, one on which none could be made, and a pod that failed.
func TestBootThatTriedOthers(t *testing.T) {
	r := newTeller(t)
	r.resume(430, "r1", "cpu-0", job7(t, "cpu-0"))
	r.at(450, powersave.Tick{}, powersave.DeletePod{Node: "cpu-0", UID: "u-old", Why: "pod belongs to an earlier boot"})
	r.at(900, powersave.PodGone{Node: "cpu-0", UID: "u-old"})
	r.create(900, "r1", "spot", "cpu-0", 7)
	r.create(1000, "r1", "spot", "cpu-0", 7) // the first call has failed
	r.pod(1100, "r1", "spot", "cpu-0", "u0", "", powersave.PodPending)
	elsewhere := powersave.Report{Node: "cpu-0", NodeSet: "cpu", Request: "r1", Text: "capacity: full" + otherOffering}
	r.at(11_000, powersave.Tick{}, elsewhere, powersave.DeletePod{Node: "cpu-0", UID: "u0", Why: "no room on its offering"})
	r.at(11_500, powersave.PodGone{Node: "cpu-0", UID: "u0"})
	r.create(11_600, "r1", "reserved", "cpu-0", 7)
	r.at(12_000, powersave.Tick{}, elsewhere, powersave.CreatePod{Node: "cpu-0", NodeSet: "cpu", Offering: "on-demand", Request: "r1", Job: 7})
	r.pod(12_100, "r1", "on-demand", "cpu-0", "u1", "host-a", powersave.PodRunning)
	r.at(12_200, powersave.Tick{}, powersave.DeletePod{Node: "cpu-0", UID: "u1", Why: "pod failed: Error"})
	r.at(12_300, powersave.PodGone{Node: "cpu-0", UID: "u1"})
	r.create(12_400, "r1", "on-demand", "cpu-0", 7)
	r.pod(12_500, "r1", "on-demand", "cpu-0", "u2", "host-b", powersave.PodRunning)
	r.registers(13_000, "r1", "cpu-0", 7)

	boots := Boots(r.entries)
	require.Len(t, boots, 1)
	b := boots[0]
	assert.Equal(t, []Tried{
		{Offering: "spot", PodUID: "u0", Asked: ms(900), Created: ms(1100), Left: ms(11_000), Gone: ms(11_500), Reason: "capacity: full" + otherOffering},
		{Offering: "reserved", Asked: ms(11_600), Left: ms(12_000), Reason: "capacity: full" + otherOffering},
		{
			Offering: "on-demand", PodUID: "u1", Host: "host-a", Asked: ms(12_000), Created: ms(12_100), Scheduled: ms(12_100), Started: ms(12_100),
			Left: ms(12_200), Gone: ms(12_300), Reason: "pod failed: Error",
		},
	}, b.Tried)
	assert.Equal(t, Boot{
		Node: "cpu-0", NodeSet: "cpu", Offering: "on-demand", Request: "r1", Jobs: []uint32{7}, Pods: 3, PodUID: "u2", Host: "host-b",
		Requested: ms(415), Accepted: ms(430), Cleared: ms(900), Asked: ms(12_400), Created: ms(12_500), Scheduled: ms(12_500), Started: ms(12_500), Registered: ms(13_000),
		Outcome: Registered, Tried: b.Tried, said: b.said,
	}, *b)
}

// TestBootWithoutAPod says since when one was asked for, also when it failed.
func TestBootWithoutAPod(t *testing.T) {
	r := newTeller(t)
	r.resume(430, "r1", "cpu-0", job7(t, "cpu-0"))
	r.create(500, "r1", "spot", "cpu-0", 7)
	v := powersave.Verdict{Trouble: powersave.TroubleQuota, Reason: "exceeded quota"}
	r.at(900, powersave.Tick{}, powersave.BootFailed{Node: "cpu-0", NodeSet: "cpu", Request: "r1", Jobs: []uint32{7}, Verdict: v})
	boots := Boots(r.entries)
	require.Len(t, boots, 1)
	assert.Equal(t, Boot{
		Node: "cpu-0", NodeSet: "cpu", Request: "r1", Jobs: []uint32{7}, Requested: ms(415), Accepted: ms(430), Asked: ms(500), Ended: ms(900),
		Outcome: Failed, Class: "quota", Reason: "exceeded quota",
	}, *boots[0])
}

// TestMakerTells has each boot begin and end once, whatever is told again by a bridge that was started anew.
func TestMakerTells(t *testing.T) {
	r := newTeller(t)
	r.resume(430, "r1", "cpu-[0-2]")
	r.pod(500, "r1", "", "cpu-0", "u0", "host-a", powersave.PodRunning)
	r.registers(600, "r1", "cpu-0")
	r.at(700, powersave.RequestAccepted{Request: powersave.Request{ID: "s1", Kind: spool.KindSuspend, Nodes: list(t, "cpu-1")}})
	r.at(710, powersave.Tick{}, powersave.Report{Node: "cpu-2", Text: "slurmctld knows no such node: the boot is given up"})
	r.restart(1000)
	r.resume(1010, "r1", "cpu-[0-2]")
	r.registers(1020, "r1", "cpu-0")
	var begun, ended []string
	var two *Boot
	m := Maker{Begun: func(b *Boot) {
		begun = append(begun, b.Node)
		two = b
	}, Ended: func(b *Boot) { ended = append(ended, b.Node+" "+string(b.Outcome)+" "+b.Reason) }}
	for i := range r.entries {
		m.Add(&r.entries[i])
	}
	assert.Equal(t, []string{"cpu-0", "cpu-1", "cpu-2"}, begun)
	assert.Equal(t, []string{"cpu-0 registered ", "cpu-1 given back "}, ended)
	m.End(two, ms(2000))
	m.End(two, ms(3000))
	assert.Equal(t, "cpu-2 given back slurmctld knows no such node: the boot is given up", ended[2])
	assert.Len(t, ended, 3)
	assert.Equal(t, ms(2000), two.Ended)
	assert.Len(t, m.known, 3)
	m.Forget(two)
	assert.Len(t, m.known, 2)
	m.Add(&Entry{What: RequestAccepted, Kind: string(spool.KindResume), Request: "r1", Nodes: "cpu-2"})
	assert.Len(t, begun, 4, "who is forgotten is new again")
}
