//go:build integration

package slurmrest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
)

// The real slurmrestd is named by the environment:
//
//	SLURMTIDE_REST_URL   http://host:6820 or unix:///path/slurmrestd.sock
//	SLURMTIDE_JWT_KEY    path of the cluster's jwt_hs256.key
//	SLURMTIDE_JWT_USER   SlurmUser's name, slurm if unset
//
// Each test needs one CLOUD node that is off and idle, and leaves it so.
func realConfig(t *testing.T) Config {
	t.Helper()
	server, key, user := os.Getenv("SLURMTIDE_REST_URL"), os.Getenv("SLURMTIDE_JWT_KEY"), os.Getenv("SLURMTIDE_JWT_USER")
	if server == "" || key == "" {
		t.Fatal("set SLURMTIDE_REST_URL and SLURMTIDE_JWT_KEY to a running slurmrestd and its key")
	}
	if user == "" {
		user = "slurm"
	}
	return Config{Server: server, Token: KeyFile{Path: key, User: user}}
}

func spareNode(t *testing.T, c *Client) powersave.SlurmNode {
	t.Helper()
	nodes, err := c.Nodes(t.Context())
	require.NoError(t, err)
	for _, n := range nodes {
		if n.State&^powersave.NodeNotResponding == powersave.NodeIdle|powersave.NodeCloud|powersave.NodePoweredDown {
			return n
		}
	}
	t.Fatalf("none of the %d nodes is IDLE+CLOUD+POWERED_DOWN", len(nodes))
	return powersave.SlurmNode{}
}

// realVersions runs a test with each data_parser version the server has.
func realVersions(t *testing.T, test func(t *testing.T, c *Client)) { realNewest(t, len(apis()), test) }

// realNewest runs a test with at most so many of them, the newest first.
func realNewest(t *testing.T, most int, test func(t *testing.T, c *Client)) {
	cfg := realConfig(t)
	tried := 0
	for _, a := range apis() {
		c, err := New(cfg)
		require.NoError(t, err)
		c.known = []*api{a}
		if _, err := c.negotiated(t.Context(), nil); err != nil {
			var unsupported *UnsupportedError
			require.ErrorAs(t, err, &unsupported)
			assert.NotEmpty(t, unsupported.Release, "the release must be named: %v", err)
			continue
		}
		if tried == most {
			break
		}
		tried++
		t.Run(a.version, func(t *testing.T) {
			defer c.Close()
			test(t, c)
		})
	}
	require.NotZero(t, tried)
}

func TestRealReads(t *testing.T) {
	realVersions(t, func(t *testing.T, c *Client) {
		require.NoError(t, c.Ping(t.Context()))
		all, err := c.Nodes(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, all)
		for _, n := range all {
			assert.False(t, n.State.Any(powersave.NodeOther), "%s has a state word this program does not know", n.Name)
			assert.Positive(t, n.CPUs, n.Name)
			assert.Positive(t, n.RealMemory, n.Name)
		}
		first := all[0].Name
		got, err := c.Nodes(t.Context(), first, "no-such-node")
		var missing *NotFoundError
		require.ErrorAs(t, err, &missing)
		assert.Equal(t, []string{"no-such-node"}, missing.Names)
		assert.Equal(t, []string{first}, names(got))

		timeouts, err := c.Timeouts(t.Context())
		require.NoError(t, err)
		t.Logf("%s: %d nodes, timeouts %+v", fmt.Sprint(c.Version()), len(all), timeouts)
	})
}

func TestRealUpdates(t *testing.T) {
	realVersions(t, func(t *testing.T, c *Client) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		node := spareNode(t, c).Name
		set := func(change powersave.StateChange, reason string, also ...string) error {
			return c.UpdateNodes(ctx, powersave.NodeUpdate{Nodes: append([]string{node}, also...), State: change, Reason: reason})
		}
		// wait polls until the node has all words of has and none of not. slurmctld works on power states once a second or slower.
		wait := func(has, not powersave.NodeState) powersave.SlurmNode {
			t.Helper()
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			for {
				got, err := c.Nodes(ctx, node)
				require.NoError(t, err)
				if got[0].State.Has(has) && !got[0].State.Any(not) {
					t.Logf("%v %q", got[0].State, got[0].Reason)
					return got[0]
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					t.Fatalf("%s is %v, not %v without %v", node, got[0].State, has, not)
				}
			}
		}
		const (
			upFlags   = powersave.NodePowerUp | powersave.NodePoweringUp
			downFlags = powersave.NodePowerDown | powersave.NodePoweringDown
		)

		// The unknown name sorts before the node, so slurmctld stops before reaching it.
		err := set(powersave.StatePowerUp, "", "0-no-such-node")
		require.True(t, IsNotFound(err), "%v", err)
		wait(powersave.NodePoweringUp, powersave.NodePoweredDown|powersave.NodePowerUp)

		require.NoError(t, set(powersave.StatePowerDownForce, "slurmtide: test force"))
		forced := wait(0, upFlags)
		assert.Equal(t, "slurmtide: test force", forced.Reason)
		wait(powersave.NodePoweringDown, upFlags|powersave.NodePowerDown)
		require.NoError(t, set(powersave.StateResume, ""))
		wait(powersave.NodePoweredDown, upFlags|downFlags)

		require.True(t, IsInvalidTransition(set(powersave.StateResume, "")))

		require.NoError(t, set(powersave.StateDown, "slurmtide: test down"))
		assert.Equal(t, "slurmtide: test down", wait(powersave.NodeDown, 0).Reason)
		require.NoError(t, set(powersave.StateResume, ""))
		wait(powersave.NodeIdle|powersave.NodePoweredDown, powersave.NodeDown)

		require.NoError(t, set(powersave.StateDrain, "slurmtide: test drain"))
		assert.Equal(t, "slurmtide: test drain", wait(powersave.NodeDrain, 0).Reason)
		require.NoError(t, set(powersave.StateResume, ""))
		wait(powersave.NodePoweredDown, powersave.NodeDrain)

		require.NoError(t, set(powersave.StateDrain, "slurmtide: test undrain"))
		assert.Equal(t, "slurmtide: test undrain", wait(powersave.NodeDrain, 0).Reason)
		require.NoError(t, set(powersave.StateUndrain, ""))
		wait(powersave.NodePoweredDown, powersave.NodeDrain)

		require.NoError(t, set(powersave.StatePowerUp, ""))
		wait(powersave.NodePoweringUp, powersave.NodePoweredDown|powersave.NodePowerUp)
		require.NoError(t, set(powersave.StateDown, "slurmtide: test asap"))
		require.NoError(t, set(powersave.StatePowerDownASAP, ""))
		wait(powersave.NodePoweringDown, upFlags)
		require.NoError(t, set(powersave.StateUndrain, ""), "it ends only the drain")
		wait(powersave.NodePoweringDown, upFlags|powersave.NodeDrain)
		require.NoError(t, set(powersave.StateResume, ""))
		wait(powersave.NodeIdle|powersave.NodePoweredDown, upFlags|downFlags|powersave.NodeDrain|powersave.NodeDown)

		require.NoError(t, c.UpdateNodes(ctx, powersave.NodeUpdate{Nodes: []string{node}, Comment: "slurmtide: test"}))
	})
}

func TestRealTokens(t *testing.T) {
	cfg := realConfig(t)
	key, err := os.ReadFile(cfg.Token.(KeyFile).Path)
	require.NoError(t, err)
	wrong := file(t, string(bytes.Repeat([]byte("x"), len(key))))

	for name, source := range map[string]TokenSource{
		"wrong key": KeyFile{Path: wrong, User: cfg.Token.(KeyFile).User},
		"expired":   KeyFile{Path: cfg.Token.(KeyFile).Path, User: cfg.Token.(KeyFile).User, Now: func() time.Time { return time.Now().Add(-2 * time.Hour) }},
		"no JWT":    Static("nonsense"),
	} {
		t.Run(name, func(t *testing.T) {
			cfg := cfg
			cfg.Token = source
			c, err := New(cfg)
			require.NoError(t, err)
			_, err = c.Nodes(t.Context())
			require.True(t, IsAuth(err), "%v", err)
			require.ErrorContains(t, err, "jwt_hs256.key")
			t.Log(err)
			err = c.Ping(t.Context())
			require.True(t, IsAuth(err), "ping must tell a refused token from a slurmctld that is down: %v", err)
		})
	}

	t.Run("not allowed", func(t *testing.T) {
		cfg := cfg
		cfg.Token = KeyFile{Path: cfg.Token.(KeyFile).Path, User: "nobody"}
		c, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		err = c.UpdateNodes(t.Context(), powersave.NodeUpdate{Nodes: []string{spareNode(t, c).Name}, State: powersave.StatePowerUp})
		require.True(t, IsAuth(err), "%v", err)
		assert.ErrorContains(t, err, "use a token for SlurmUser")
	})
}
