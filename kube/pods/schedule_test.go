package pods

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

func TestSchedule(t *testing.T) {
	const (
		berlin = "Europe/Berlin"       // 2026: forward on 29 March at 01:00 UTC, back on 25 October at 01:00 UTC
		cairo  = "Africa/Cairo"        // forward on Friday 24 April at 22:00 UTC of the day before: there is no midnight
		howe   = "Australia/Lord_Howe" // half an hour forward on 4 October at 15:30 UTC of the day before
	)
	for name, tc := range map[string]struct{ start, zone, after, want string }{
		"UTC unless it says otherwise":    {"0 8 * * *", "", "2026-03-29T08:00:00Z", "2026-03-30T08:00:00Z"},
		"a time that is left out":         {"30 2 * * *", berlin, "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"},
		"once":                            {"30 2 * * *", berlin, "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		"just before it":                  {"30 2 * * *", berlin, "2026-03-29T00:59:59.5Z", "2026-03-29T01:00:00Z"},
		"west of Greenwich":               {"30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", "2026-03-08T07:00:00Z"},
		"half an hour":                    {"15 2 * * *", howe, "2026-10-03T00:00:00Z", "2026-10-03T15:30:00Z"},
		"midnight is left out":            {"0 0 * * *", cairo, "2026-04-23T12:00:00Z", "2026-04-23T22:00:00Z"},
		"the day without midnight counts": {"0 8 * * FRI", cairo, "2026-04-22T00:00:00Z", "2026-04-24T05:00:00Z"},
		"not on other days":               {"30 2 * * MON", berlin, "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z"},
		"what begins at that moment":      {"0 3 * * *", berlin, "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"},
		"a time that comes twice":         {"30 2 * * *", berlin, "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"},
		"is the first":                    {"30 2 * * *", berlin, "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		"also between the two":            {"30 2 * * *", berlin, "2026-10-25T00:45:00Z", "2026-10-26T01:30:00Z"},
		"and in the second hour":          {"30 2 * * *", berlin, "2026-10-25T01:10:00Z", "2026-10-26T01:30:00Z"},
		"after that hour":                 {"0 3 * * *", berlin, "2026-10-25T00:30:00Z", "2026-10-25T02:00:00Z"},
		"every hour, forward":             {"30 * * * *", berlin, "2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"},
		"every hour, back":                {"30 * * * *", berlin, "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"},
		"years away":                      {"0 8 29 2 *", berlin, "2026-01-01T00:00:00Z", "2028-02-29T07:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := schedule(v1alpha1.ReplicaWindow{Start: tc.start, TimeZone: tc.zone})
			require.NoError(t, err)
			after, err := time.Parse(time.RFC3339, tc.after)
			require.NoError(t, err)
			assert.Equal(t, tc.want, s.Next(after).UTC().Format(time.RFC3339))
		})
	}
	never, err := schedule(v1alpha1.ReplicaWindow{Start: "0 8 30 2 *", TimeZone: berlin})
	require.NoError(t, err)
	assert.True(t, never.Next(time.Unix(0, 0)).IsZero())
}

// What begins once a day does so on each day, wherever and whenever that is.
func TestScheduleOnEachDay(t *testing.T) {
	for _, zone := range []string{
		"UTC", "Europe/Berlin", "America/New_York", "America/Santiago", "America/Havana", "Africa/Cairo", "Africa/Casablanca", "Asia/Beirut", "Asia/Kathmandu", "Australia/Lord_Howe",
		"Pacific/Auckland",
	} {
		place, err := time.LoadLocation(zone)
		require.NoError(t, err)
		for _, hour := range []int{0, 1, 2, 3, 12, 23} {
			for _, minute := range []int{0, 15, 59} {
				s, err := schedule(v1alpha1.ReplicaWindow{Start: fmt.Sprintf("%d %d * * *", minute, hour), TimeZone: zone})
				require.NoError(t, err)
				begin := time.Date(2025, 12, 31, 12, 0, 0, 0, place)
				day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
				if hour > 12 || hour == 12 && minute > 0 {
					day = day.AddDate(0, 0, -1)
				}
				for range 370 {
					next := s.Next(begin)
					require.True(t, next.After(begin))
					require.Equal(t, day.Format(time.DateOnly), next.In(place).Format(time.DateOnly), "%s: %d %d after %s", zone, minute, hour, begin)
					for _, d := range []time.Duration{time.Nanosecond, time.Second, 10 * time.Minute, time.Hour} { // it matters not from where one looks
						if from := next.Add(-d); from.After(begin) {
							require.True(t, next.Equal(s.Next(from)), "%s: %d %d after %s", zone, minute, hour, from)
						}
					}
					begin, day = next, day.AddDate(0, 0, 1)
				}
			}
		}
	}
}
