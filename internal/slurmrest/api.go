package slurmrest

import (
	"net/http"

	v0042 "github.com/SlinkyProject/slurm-client/api/v0042"
	v0043 "github.com/SlinkyProject/slurm-client/api/v0043"
	v0044 "github.com/SlinkyProject/slurm-client/api/v0044"
	v0045 "github.com/SlinkyProject/slurm-client/api/v0045"

	"github.com/slurmtide/slurmtide/powersave"
)

// SupportedReleases names the Slurm releases this package speaks to, for messages.
const SupportedReleases = "24.11 to 26.05 (data_parser v0.0.42 to v0.0.45)"

// request builds one HTTP request against a server's base URL.
type request func(server string) (*http.Request, error)

// api is one data_parser version: how its requests are written.
type api struct {
	version    string // as in the URL: "v0.0.45"
	ping       request
	diag       request
	nodes      request
	partitions request // with flag ALL: without it slurmctld leaves hidden ones, and those of other groups, out for users who are no operators
	conf       request // nil before v0.0.45
	node       func(name string) request
	update     func(u powersave.NodeUpdate) request // nil for what the version has no field for
	deleteNode func(name string) request
	// reservations are asked for without update_time: all of them.
	reservations request
	reserve      func(r reservation) request // makes it, or changes it; nil before v0.0.43
	unreserve    func(name string) request   // nil before v0.0.43
	jobAPI
}

// apis is ordered newest first, the order in which a server is asked.
func apis() []*api {
	return []*api{
		{
			version: "v0.0.45",
			jobAPI:  jobsV0045(),
			deleteNode: func(name string) request {
				return func(s string) (*http.Request, error) { return v0045.NewSlurmV0045DeleteNodeRequest(s, name) }
			},
			reservations: func(s string) (*http.Request, error) { return v0045.NewSlurmV0045GetReservationsRequest(s, nil) },
			reserve:      reserveV0045,
			unreserve: func(name string) request {
				return func(s string) (*http.Request, error) { return v0045.NewSlurmV0045DeleteReservationRequest(s, name) }
			},
			ping:  v0045.NewSlurmV0045GetPingRequest,
			diag:  v0045.NewSlurmV0045GetDiagRequest,
			nodes: func(s string) (*http.Request, error) { return v0045.NewSlurmV0045GetNodesRequest(s, nil) },
			partitions: func(s string) (*http.Request, error) {
				return v0045.NewSlurmV0045GetPartitionsRequest(s, &v0045.SlurmV0045GetPartitionsParams{Flags: ptr(v0045.SlurmV0045GetPartitionsParamsFlagsALL)})
			},
			conf: func(s string) (*http.Request, error) { return v0045.NewSlurmV0045GetConfRequest(s, nil) },
			node: func(name string) request {
				return func(s string) (*http.Request, error) { return v0045.NewSlurmV0045GetNodeRequest(s, name, nil) }
			},
			update: func(u powersave.NodeUpdate) request {
				body := v0045.V0045UpdateNodeMsg{
					Name:        &u.Nodes,
					State:       stateWords[v0045.V0045UpdateNodeMsgState](namedStates, u.State),
					Reason:      orNil(u.Reason),
					Comment:     orNil(u.Comment),
					Extra:       orNil(u.Extra),
					TopologyStr: orNil(u.Topology),
				}
				return func(s string) (*http.Request, error) { return v0045.NewSlurmV0045PostNodesRequest(s, body) }
			},
		},
		{
			version: "v0.0.44",
			jobAPI:  jobsV0044(),
			deleteNode: func(name string) request {
				return func(s string) (*http.Request, error) { return v0044.NewSlurmV0044DeleteNodeRequest(s, name) }
			},
			reservations: func(s string) (*http.Request, error) { return v0044.NewSlurmV0044GetReservationsRequest(s, nil) },
			reserve:      reserveV0044,
			unreserve: func(name string) request {
				return func(s string) (*http.Request, error) { return v0044.NewSlurmV0044DeleteReservationRequest(s, name) }
			},
			ping:  v0044.NewSlurmV0044GetPingRequest,
			diag:  v0044.NewSlurmV0044GetDiagRequest,
			nodes: func(s string) (*http.Request, error) { return v0044.NewSlurmV0044GetNodesRequest(s, nil) },
			partitions: func(s string) (*http.Request, error) {
				return v0044.NewSlurmV0044GetPartitionsRequest(s, &v0044.SlurmV0044GetPartitionsParams{Flags: ptr(v0044.SlurmV0044GetPartitionsParamsFlagsALL)})
			},
			node: func(name string) request {
				return func(s string) (*http.Request, error) { return v0044.NewSlurmV0044GetNodeRequest(s, name, nil) }
			},
			update: func(u powersave.NodeUpdate) request {
				body := v0044.V0044UpdateNodeMsg{
					Name:        &u.Nodes,
					State:       stateWords[v0044.V0044UpdateNodeMsgState](combinedStates, u.State),
					Reason:      orNil(u.Reason),
					Comment:     orNil(u.Comment),
					Extra:       orNil(u.Extra),
					TopologyStr: orNil(u.Topology),
				}
				return func(s string) (*http.Request, error) { return v0044.NewSlurmV0044PostNodesRequest(s, body) }
			},
		},
		{
			version: "v0.0.43",
			jobAPI:  jobsV0043(),
			deleteNode: func(name string) request {
				return func(s string) (*http.Request, error) { return v0043.NewSlurmV0043DeleteNodeRequest(s, name) }
			},
			reservations: func(s string) (*http.Request, error) { return v0043.NewSlurmV0043GetReservationsRequest(s, nil) },
			reserve:      reserveV0043,
			unreserve: func(name string) request {
				return func(s string) (*http.Request, error) { return v0043.NewSlurmV0043DeleteReservationRequest(s, name) }
			},
			ping:  v0043.NewSlurmV0043GetPingRequest,
			diag:  v0043.NewSlurmV0043GetDiagRequest,
			nodes: func(s string) (*http.Request, error) { return v0043.NewSlurmV0043GetNodesRequest(s, nil) },
			partitions: func(s string) (*http.Request, error) {
				return v0043.NewSlurmV0043GetPartitionsRequest(s, &v0043.SlurmV0043GetPartitionsParams{Flags: ptr(v0043.SlurmV0043GetPartitionsParamsFlagsALL)})
			},
			node: func(name string) request {
				return func(s string) (*http.Request, error) { return v0043.NewSlurmV0043GetNodeRequest(s, name, nil) }
			},
			update: func(u powersave.NodeUpdate) request {
				if u.Topology != "" {
					return nil
				}
				body := v0043.V0043UpdateNodeMsg{
					Name:    &u.Nodes,
					State:   stateWords[v0043.V0043UpdateNodeMsgState](combinedStates, u.State),
					Reason:  orNil(u.Reason),
					Comment: orNil(u.Comment),
					Extra:   orNil(u.Extra),
				}
				return func(s string) (*http.Request, error) { return v0043.NewSlurmV0043PostNodesRequest(s, body) }
			},
		},
		{
			version: "v0.0.42",
			jobAPI:  jobsV0042(),
			deleteNode: func(name string) request {
				return func(s string) (*http.Request, error) { return v0042.NewSlurmV0042DeleteNodeRequest(s, name) }
			},
			reservations: func(s string) (*http.Request, error) { return v0042.NewSlurmV0042GetReservationsRequest(s, nil) },
			ping:         v0042.NewSlurmV0042GetPingRequest,
			diag:         v0042.NewSlurmV0042GetDiagRequest,
			nodes:        func(s string) (*http.Request, error) { return v0042.NewSlurmV0042GetNodesRequest(s, nil) },
			partitions: func(s string) (*http.Request, error) {
				return v0042.NewSlurmV0042GetPartitionsRequest(s, &v0042.SlurmV0042GetPartitionsParams{Flags: ptr(v0042.SlurmV0042GetPartitionsParamsFlagsALL)})
			},
			node: func(name string) request {
				return func(s string) (*http.Request, error) { return v0042.NewSlurmV0042GetNodeRequest(s, name, nil) }
			},
			update: func(u powersave.NodeUpdate) request {
				if u.Topology != "" {
					return nil
				}
				body := v0042.V0042UpdateNodeMsg{
					Name:    &u.Nodes,
					State:   stateWords[v0042.V0042UpdateNodeMsgState](combinedStates, u.State),
					Reason:  orNil(u.Reason),
					Comment: orNil(u.Comment),
					Extra:   orNil(u.Extra),
				}
				return func(s string) (*http.Request, error) { return v0042.NewSlurmV0042PostNodesRequest(s, body) }
			},
		},
	}
}

// foreignVersions are asked only when none of ours answers, to name the release in the error.
func foreignVersions() []string {
	return []string{"v0.0.46", "v0.0.47", "v0.0.48", "v0.0.41", "v0.0.40", "v0.0.39", "v0.0.38"}
}

// combinedStates spells the changes for parsers before v0.0.45, which lack names
// for the two composite ones and OR the flags of a list. slurmctld sees the same
// numbers as with scontrol (slurm.h, node_mgr.c _valid_node_state_change).
func combinedStates(c powersave.StateChange) []string {
	switch c {
	case powersave.StatePowerDownASAP:
		return []string{"POWER_DOWN", "POWER_DRAIN"}
	case powersave.StatePowerDownForce:
		return []string{"POWER_DOWN", "POWERED_DOWN"}
	case powersave.StateResume:
		return []string{"RESUME"}
	case powersave.StateUndrain:
		return []string{"UNDRAIN"}
	case powersave.StateDown:
		return []string{"DOWN"}
	case powersave.StateDrain:
		return []string{"DRAIN"}
	case powersave.StateRenew:
		return []string{"IDLE"}
	case powersave.StatePowerUp:
		return []string{"POWER_UP"}
	case powersave.StatePowerDown:
		return []string{"POWER_DOWN"}
	default:
		return nil
	}
}

// namedStates spells the changes for v0.0.45.
func namedStates(c powersave.StateChange) []string {
	switch c {
	case powersave.StatePowerDownASAP:
		return []string{"POWER_DOWN_ASAP"}
	case powersave.StatePowerDownForce:
		return []string{"POWER_DOWN_FORCE"}
	default:
		return combinedStates(c)
	}
}

func stateWords[T ~string](spell func(powersave.StateChange) []string, c powersave.StateChange) *[]T {
	words := spell(c)
	if words == nil {
		return nil
	}
	out := make([]T, len(words))
	for i, w := range words {
		out[i] = T(w)
	}
	return &out
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
