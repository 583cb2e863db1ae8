package dynamic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
)

// watchHosts has the planner shown hosts.
func (w *world) watchHosts() {
	known := &powersave.HostTroubles{}
	w.also = func(f *Facts) {
		for name, trouble := range w.hosts {
			known.Take(w.now, powersave.Host{Name: name, Trouble: trouble})
		}
		f.Hosts = known
	}
}

// trouble gets a host into trouble, or out of it.
func (w *world) trouble(host, what string) { w.hosts[host] = what }

// drainedFor reports that dyn-0 is drained for that reason.
func (w *world) drainedFor(reason string) bool {
	r := w.records["dyn-0"]
	return r != nil && r.State.Any(powersave.NodeDrain) && r.Reason == reason
}

// A host that is to be emptied: jobs run on, no new ones come, and the pod leaves when they have ended.
func TestHostCordoned(t *testing.T) {
	for name, trouble := range map[string]string{"cordoned": powersave.HostCordoned, "tainted": "tainted maintenance"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("dyn-[0-3]", 0)
			w.watchHosts()
			j := w.startOne(t)
			host := w.pods["dyn-0"].Host
			w.trouble(host, trouble)
			w.seconds(2)
			require.True(t, w.drainedFor("slurmtide: host: "+host+" is "+trouble), "%+v", w.records["dyn-0"])
			w.submit(1, "dyn-0")
			w.seconds(60)
			require.True(t, j.running, "it runs on")
			require.True(t, w.drainedFor("slurmtide: host: "+host+" is "+trouble), "also when somebody wants it")
			updates := w.updates
			w.seconds(20)
			require.Equal(t, updates, w.updates)

			w.trouble(host, "")
			w.seconds(2)
			require.False(t, w.records["dyn-0"].State.Any(powersave.NodeDrain), "its host is well again")
			require.Len(t, w.pods, 1)

			uid := w.pods["dyn-0"].UID
			w.trouble(host, trouble)
			w.seconds(2)
			w.end(j)
			w.seconds(10)
			require.NotEqual(t, uid, w.pods["dyn-0"].UID)
			require.Equal(t, 1, w.running(), "the job that asks for it by name gets it on another host")
			require.NotEqual(t, host, w.pods["dyn-0"].Host)
			require.Empty(t, w.broken)
		})
	}
}

// Idle nodes of the floor leave the host, and others take their place.
func TestHostCordonedFloor(t *testing.T) {
	w := newWorld("dyn-[0-9]", 2)
	w.watchHosts()
	w.seconds(5)
	require.Len(t, w.pods, 2)
	w.trouble("h1", powersave.HostCordoned)
	for range 30 {
		w.second(true)
		for name, pod := range w.pods { // what is made on the host that is cordoned is the scheduler's affair
			if pod.Phase == powersave.PodPending && hostOf(pod.UID) == "h1" {
				w.vanish(name)
			}
		}
	}
	w.seconds(5)
	require.Len(t, w.pods, 2)
	for _, pod := range w.pods {
		assert.Equal(t, "h0", pod.Host)
	}
	require.Empty(t, w.broken)
}

// A host that does not answer: nobody could confirm that its pods end, so they stay.
func TestHostSilent(t *testing.T) {
	w := newWorld("dyn-[0-3]", 1)
	w.watchHosts()
	w.seconds(5)
	host, uid := w.pods["dyn-0"].Host, w.pods["dyn-0"].UID
	w.trouble(host, powersave.HostNotReady)
	w.seconds(9)
	require.False(t, w.records["dyn-0"].State.Any(powersave.NodeDrain), "a kubelet may restart")
	w.seconds(3)
	require.True(t, w.drainedFor("slurmtide: host: "+host+" is not ready"))
	w.seconds(60)
	require.Equal(t, uid, w.pods["dyn-0"].UID)
	require.Len(t, w.pods, 2, "another one is there instead")
	w.trouble(host, "")
	w.seconds(2)
	require.False(t, w.records["dyn-0"].State.Any(powersave.NodeDrain))
	w.seconds(60)
	require.Len(t, w.pods, 1)
	require.Empty(t, w.broken)
}

// Reasons of people stay.
func TestHostAndPeople(t *testing.T) {
	w := newWorld("dyn-[0-3]", 1)
	w.watchHosts()
	w.seconds(5)
	r := w.records["dyn-0"]
	r.State |= powersave.NodeDrain
	r.Reason = "bad fan"
	w.trouble(w.pods["dyn-0"].Host, powersave.HostCordoned)
	w.seconds(200)
	require.True(t, w.drainedFor("bad fan"))
	require.Contains(t, w.pods, "dyn-0")
}

// Before hosts have been read nothing is known of those that were in trouble; where they may not be read, nodes drained for theirs go when they are idle.
func TestHostsUnread(t *testing.T) {
	w := newWorld("dyn-[0-3]", 1)
	w.seconds(5)
	r := w.records["dyn-0"]
	r.State |= powersave.NodeDrain
	r.Reason = "slurmtide: host: h1 is cordoned"
	uid := w.pods["dyn-0"].UID
	w.seconds(60)
	require.True(t, w.drainedFor("slurmtide: host: h1 is cordoned"))
	require.Equal(t, uid, w.pods["dyn-0"].UID)
	w.also = func(f *Facts) { f.HostsUnread = true }
	w.seconds(10)
	require.NotContains(t, w.pods, "dyn-0")
	require.Empty(t, w.broken)
}

// What slurmctld adds to our reason does not make it somebody else's.
func TestHostReasonOutlived(t *testing.T) {
	for name, tc := range map[string]struct {
		added string
		back  bool
	}{
		"silent":    {" : Not responding", true},
		"something": {" : Low RealMemory", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("dyn-[0-3]", 1)
			w.watchHosts()
			w.seconds(5)
			uid := w.pods["dyn-0"].UID
			w.trouble(w.pods["dyn-0"].Host, powersave.HostNotReady)
			w.seconds(13)
			w.records["dyn-0"].Reason += tc.added
			w.trouble(w.pods["dyn-0"].Host, "")
			w.seconds(10)
			if tc.back {
				require.Equal(t, uid, w.pods["dyn-0"].UID)
				require.False(t, w.records["dyn-0"].State.Any(powersave.NodeDrain))
			} else {
				require.NotContains(t, w.pods, "dyn-0")
			}
		})
	}
}

// The floor follows windows.
func TestWindows(t *testing.T) {
	w := newWorld("dyn-[0-9]", 1, func(s *powersave.NodeSet) {
		s.Windows = []powersave.FloorWindow{{Schedule: once(start.Add(time.Minute)), Duration: 2 * time.Minute, Replicas: 3}}
	})
	w.seconds(50)
	require.Len(t, w.pods, 1)
	w.seconds(15)
	require.Len(t, w.pods, 3)
	require.Equal(t, &powersave.FloorCounts{Wanted: 3, Held: 3}, w.planner.Counts("")[0].Floor)
	w.seconds(100)
	require.Len(t, w.pods, 3)
	w.seconds(60)
	require.Len(t, w.pods, 1)
	require.Empty(t, w.broken)
}

type once time.Time

func (o once) Next(t time.Time) time.Time {
	if at := time.Time(o); t.Before(at) {
		return at
	}
	return time.Time{}
}
