package cli

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDraws(t *testing.T) {
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	defer tty.Close()
	env := func(pairs map[string]string) func(string) string {
		return func(key string) string { return pairs[key] }
	}
	assert.True(t, Draws(tty, env(nil)))
	assert.False(t, Draws(tty, env(map[string]string{"NO_COLOR": "1"})))
	assert.False(t, Draws(tty, env(map[string]string{"TERM": "dumb"})))
	assert.False(t, Draws(&bytes.Buffer{}, env(nil)))
}
