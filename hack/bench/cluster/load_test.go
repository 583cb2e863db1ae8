package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLoad(t *testing.T) {
	d, err := readDiag(`{"statistics": {"schedule_cycle_total": 3, "schedule_cycle_sum": 6000, "schedule_cycle_max": 5000, "bf_cycle_counter": 1, "bf_cycle_sum": 70, "bf_cycle_max": 70,
		"rpcs_by_message_type": [{"message_type": "REQUEST_JOB_INFO", "count": 40, "total_time": 9000}, {"message_type": "REQUEST_PARTITION_INFO", "count": 40, "total_time": 500},
			{"message_type": "REQUEST_STATS_INFO", "count": 1, "total_time": 5}, {"message_type": "REQUEST_NODE_INFO", "count": 2, "total_time": 3000},
			{"message_type": "REQUEST_UPDATE_NODE", "count": 4, "total_time": 500}]}}`)
	require.NoError(t, err)
	var l load
	l.add(d, false)
	l.add(d, true)
	assert.Equal(t, load{
		Runs: 2, Requests: 12, Time: 7, Main: cycles{6, 12, 5}, Backfill: cycles{2, 0.14, 0.07},
		Types: map[string]rpc{"REQUEST_NODE_INFO": {2, 3}, "REQUEST_UPDATE_NODE": {4, 0.5}},
	}, l)

	_, err = readDiag(`{"statistics": {}}`)
	require.ErrorContains(t, err, "no request")
}

// Every kind and size with and without the start gate: a row that is missing would be seen by nobody.
func TestTimings(t *testing.T) {
	for gate, all := range timings {
		got := map[string][]int{}
		for _, timed := range all {
			got[timed.kind] = append(got[timed.kind], timed.nodes...)
		}
		sizes := []int{1, 2, 10, 50, 100}
		assert.Equal(t, map[string][]int{"batch": sizes, "srun": sizes, "array": sizes}, got, gate)
	}
}
