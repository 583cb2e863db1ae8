package slurmrest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/internal/slurmrest/answer"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/scaler"
)

// Up to minSingle nodes, or one in singleShare of the cluster's, are asked for one
// by one; for more the complete list is read. Measured on 10,000 nodes: 2 to 3 ms
// for one node, 4 to 10 s for the list.
const (
	minSingle   = 4
	singleShare = 8
)

// Nodes returns what slurmctld knows of the named nodes, in the order of the
// names, or of all nodes in slurmctld's order when none is named. Nodes in state
// FUTURE are not listed. Partitions is filled only when no node is named: before
// Slurm 25.11 the answer for one node names wrong ones (slurm_populate_node_partitions).
//
// If some names are unknown, the others are returned along with a *NotFoundError;
// with any other error no nodes are.
func (c *Client) Nodes(ctx context.Context, names ...string) ([]powersave.SlurmNode, error) {
	if len(names) == 0 {
		return c.list(ctx, nil)
	}
	c.mu.Lock()
	total := c.total
	c.mu.Unlock()
	if _, bad := splitNames(names); bad == nil && len(names) <= max(minSingle, total/singleShare) {
		start := c.cfg.Now()
		nodes, err := c.singles(ctx, names)
		if err == nil || ctx.Err() != nil || IsTransient(err) && c.cfg.Now().Sub(start) >= retryFor {
			return nodes, err
		}
		// For an unknown name slurmrestd reports whatever errno holds (nodes.c _dump_nodes,
		// usually 0), so only the complete list tells that from any other failure.
	}
	want := make(map[string]bool, len(names))
	for _, n := range names {
		want[n] = true
	}
	nodes, err := c.list(ctx, want)
	if err != nil {
		return nil, err
	}
	return pick(nodes, names)
}

// pick orders nodes by names and lists the names that are missing.
func pick(nodes []powersave.SlurmNode, names []string) ([]powersave.SlurmNode, error) {
	index := make(map[string]int, len(nodes))
	for i, n := range nodes {
		index[n.Name] = i
	}
	found := make([]powersave.SlurmNode, 0, len(names))
	seen := make(map[string]bool, len(names))
	var missing []string
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		if i, ok := index[name]; ok {
			nodes[i].Partitions = nil
			found = append(found, nodes[i])
		} else {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return found, &NotFoundError{Names: missing}
	}
	return found, nil
}

func (c *Client) singles(ctx context.Context, names []string) ([]powersave.SlurmNode, error) {
	var nodes []powersave.SlurmNode
	for _, name := range names {
		r, err := c.read(ctx, nil, call{
			op: "get node", detail: name, build: func(a *api) request { return a.node(name) }, repeatable: true, single: true,
		})
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, r.List...)
	}
	return pick(nodes, names)
}

func (c *Client) list(ctx context.Context, want map[string]bool) ([]powersave.SlurmNode, error) {
	r, err := c.read(ctx, want, call{op: "list nodes", build: func(a *api) request { return a.nodes }, repeatable: true, long: true})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.total = r.Total
	c.mu.Unlock()
	return r.List, nil
}

// Records reads all nodes once, for Nodes and for QueueNodes.
func (c *Client) Records(ctx context.Context) ([]powersave.SlurmNode, []scaler.Node, error) {
	var nodes *answer.Nodes
	var capacity *answer.Capacity
	err := c.do(ctx, call{op: "list nodes", build: func(a *api) request { return a.nodes }, repeatable: true, long: true, read: func(body io.Reader) (answer.Envelope, error) {
		nodes, capacity = answer.NewNodes(nil), answer.NewCapacity()
		return answer.Decode(body, "nodes", func(dec *json.Decoder) error {
			var text json.RawMessage
			if err := dec.Decode(&text); err != nil {
				return err
			}
			if err := nodes.Read(json.NewDecoder(bytes.NewReader(text))); err != nil {
				return err
			}
			return capacity.Read(json.NewDecoder(bytes.NewReader(text)))
		})
	}})
	if err != nil {
		return nil, nil, err
	}
	return nodes.List, capacity.List, nil
}

func (c *Client) read(ctx context.Context, want map[string]bool, q call) (*answer.Nodes, error) {
	var r *answer.Nodes
	q.read = func(body io.Reader) (answer.Envelope, error) {
		r = answer.NewNodes(want)
		return answer.Decode(body, "nodes", r.Read)
	}
	if err := c.do(ctx, q); err != nil {
		return nil, err
	}
	return r, nil
}

// UpdateNodes changes nodes in one request. Slurm stops at the first name it does
// not know; then the names are checked, the known ones are updated all the same,
// and a *NotFoundError lists the others. With IsInvalidTransition the remaining
// nodes were changed. With IsUnknownOutcome the change may have happened. A renewal passes over nodes that are not plainly idle.
func (c *Client) UpdateNodes(ctx context.Context, u powersave.NodeUpdate) error {
	if err := checkUpdate(u); err != nil {
		return err
	}
	if u.State == powersave.StateRenew {
		return c.renew(ctx, u.Nodes)
	}
	names, missing := splitNames(u.Nodes)
	if len(names) > 0 {
		u.Nodes = names
		err := c.update(ctx, u)
		var e *Error
		if errors.As(err, &e) && e.Number == errInvalidNodeName {
			err = c.updateKnown(ctx, u, &missing)
		}
		if err != nil && missing != nil {
			return errors.Join(err, &NotFoundError{Names: missing})
		}
		if err != nil {
			return err
		}
	}
	if missing != nil {
		return &NotFoundError{Names: missing}
	}
	return nil
}

// updateKnown makes an update that met an unknown name again, without the unknown ones.
func (c *Client) updateKnown(ctx context.Context, u powersave.NodeUpdate, missing *[]string) error {
	nodes, err := c.Nodes(ctx, u.Nodes...)
	var unknown *NotFoundError
	switch {
	case errors.As(err, &unknown):
		*missing = append(*missing, unknown.Names...)
	case err != nil:
		return fmt.Errorf("after slurmctld refused a node name in an update (%s): %w", u, err)
	}
	u.Nodes = nil
	for _, n := range nodes {
		if unchanged(u.State, n.State) {
			u.Nodes = append(u.Nodes, n.Name)
		}
	}
	if len(u.Nodes) == 0 {
		return nil
	}
	return c.update(ctx, u)
}

// unchanged reports whether a node does not show the effect of the change yet, so
// that it has to be asked for again. Only changes that must not be made twice
// are looked at (node_mgr.c update_node).
func unchanged(change powersave.StateChange, state powersave.NodeState) bool {
	switch change {
	case powersave.StatePowerUp: // a second one calls ResumeProgram again
		return !state.Any(powersave.NodePowerUp | powersave.NodePoweringUp)
	case powersave.StateResume: // a second one is refused
		return state.Any(powersave.NodePoweringDown | powersave.NodeDown | powersave.NodeDrain | powersave.NodeFail |
			powersave.NodeFuture | powersave.NodeRebootRequested)
	case powersave.StateUndrain: // a second one has slurmctld ask slurmd to register once more
		return state.Any(powersave.NodeDrain)
	default:
		return true
	}
}

func (c *Client) update(ctx context.Context, u powersave.NodeUpdate) error {
	return c.do(ctx, call{
		op:     "update nodes",
		detail: clip(u.String(), 500),
		build:  func(a *api) request { return a.update(u) },
		// Being set down or drained twice, or given the same comment, changes nothing. power_up
		// would call ResumeProgram again, power_down_force kill a job that came in between, and
		// resume free a name that another power_down has taken, and undrain take back what somebody has said since.
		repeatable: u.State == powersave.StateNone || u.State == powersave.StateDown || u.State == powersave.StateDrain,
		read:       answer.DecodeEnvelope,
	})
}

// DeleteNode removes the record of a node that has registered itself (slurmd -Z). slurmctld refuses with
// ESLURM_INVALID_NODE_STATE if slurm.conf has the node, and with ESLURM_NODES_BUSY while it is allocated, completing, or in a
// reservation that has begun (node_mgr.c _delete_node). A node that is not there is a *NotFoundError.
//
// What slurmctld does not look at is whether anybody names the node: a job that does (--nodelist, --exclude) is
// ended when slurmctld is started again, and a reservation for later loses it.
func (c *Client) DeleteNode(ctx context.Context, name string) error {
	if _, bad := splitNames([]string{name}); bad != nil {
		return fmt.Errorf("delete node: %q is no node's name", name)
	}
	err := c.do(ctx, call{op: "delete node", detail: name, build: func(a *api) request { return a.deleteNode(name) }, repeatable: true, read: answer.DecodeEnvelope})
	var e *Error
	if errors.As(err, &e) && e.Number == errInvalidNodeName {
		return &NotFoundError{Names: []string{name}}
	}
	return err
}

// Reservations returns the nodes of every reservation, also of those that begin later, as hostlists by the reservation's name.
func (c *Client) Reservations(ctx context.Context) (map[string]string, error) {
	r, err := c.readReservations(ctx)
	return r.Nodes, err
}

// QueueReservations returns every reservation by its name, with its nodes and its start.
func (c *Client) QueueReservations(ctx context.Context) (map[string]scaler.Reservation, error) {
	r, err := c.readReservations(ctx)
	if err != nil {
		return nil, err
	}
	all := make(map[string]scaler.Reservation, len(r.Nodes))
	for name, nodes := range r.Nodes {
		all[name] = scaler.Reservation{Nodes: nodes, Start: r.Starts[name]}
	}
	return all, nil
}

func (c *Client) readReservations(ctx context.Context) (answer.Reservations, error) {
	var all answer.Reservations
	err := c.do(ctx, call{op: "list reservations", build: func(a *api) request { return a.reservations }, repeatable: true, read: func(body io.Reader) (answer.Envelope, error) {
		r := answer.Reservations{}
		env, err := answer.Decode(body, "reservations", r.Read)
		all = r
		return env, err
	}})
	if err != nil {
		return answer.Reservations{}, err
	}
	return all, nil
}

func checkUpdate(u powersave.NodeUpdate) error {
	if u.State != powersave.StateNone && combinedStates(u.State) == nil {
		return fmt.Errorf("update nodes: no such state change: %q", u.State)
	}
	if (u.State == powersave.StateDown || u.State == powersave.StateDrain) && u.Reason == "" {
		return fmt.Errorf("update nodes (%s): a reason is required", u)
	}
	return nil
}

// splitNames sets apart what slurmctld would take for more than one node: a
// hostlist with brackets or commas, and ALL (nodespec_to_hostlist).
func splitNames(names []string) (good, bad []string) {
	isBad := func(n string) bool {
		return n == "" || strings.ContainsAny(n, "[]{},/ \t\r\n") || strings.EqualFold(n, "ALL")
	}
	if !slices.ContainsFunc(names, isBad) {
		return names, nil
	}
	for _, n := range names {
		if isBad(n) {
			bad = append(bad, n)
		} else {
			good = append(good, n)
		}
	}
	return good, bad
}

// Ping checks the whole way to slurmctld and back, once. The error says where it
// ends. It asks for statistics, because slurmrestd's ping hides a refused token.
func (c *Client) Ping(ctx context.Context) error {
	return c.do(ctx, call{op: "ping", build: func(a *api) request { return a.diag }, repeatable: true, single: true, read: answer.DecodeEnvelope})
}

// Timeouts are slurm.conf's ResumeTimeout and SuspendTimeout; zero where unknown.
type Timeouts struct {
	Resume, Suspend time.Duration
	// Partitions holds the partitions with values of their own; zero there means the global one.
	Partitions map[string]PartitionTimeouts
}

// PartitionTimeouts are one partition's own values.
type PartitionTimeouts struct{ Resume, Suspend time.Duration }

// Timeouts reads what slurmrestd offers: the partitions' own values in all
// versions, the global ones from v0.0.45 (Slurm 26.05) only.
func (c *Client) Timeouts(ctx context.Context) (Timeouts, error) {
	var t Timeouts
	err := c.do(ctx, call{
		op:         opPartitions,
		build:      func(a *api) request { return a.partitions },
		repeatable: true,
		read: func(body io.Reader) (answer.Envelope, error) {
			t.Partitions = map[string]PartitionTimeouts{}
			return answer.Decode(body, "partitions", func(dec *json.Decoder) error {
				var p struct {
					Name     string `json:"name"`
					Timeouts struct {
						Resume  answer.Number `json:"resume"`
						Suspend answer.Number `json:"suspend"`
					} `json:"timeouts"`
				}
				if err := dec.Decode(&p); err != nil {
					return err
				}
				own := PartitionTimeouts{p.Timeouts.Resume.Duration(), p.Timeouts.Suspend.Duration()}
				if own != (PartitionTimeouts{}) {
					t.Partitions[p.Name] = own
				}
				return nil
			})
		},
	})
	if err != nil {
		return Timeouts{}, err
	}
	err = c.do(ctx, call{
		op:         "get configuration",
		build:      func(a *api) request { return a.conf },
		repeatable: true,
		read: func(body io.Reader) (answer.Envelope, error) {
			var conf struct {
				answer.Envelope
				Conf struct {
					Resume  answer.Number `json:"ResumeTimeout"`
					Suspend answer.Number `json:"SuspendTimeout"`
				} `json:"slurm_conf"`
			}
			err := json.NewDecoder(body).Decode(&conf)
			t.Resume, t.Suspend = conf.Conf.Resume.Duration(), conf.Conf.Suspend.Duration()
			return conf.Envelope, err
		},
	})
	if err != nil && !errors.As(err, new(notOfferedError)) {
		return Timeouts{}, err
	}
	return t, nil
}
