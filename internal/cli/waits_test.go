package cli

import (
	"bytes"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		over := waiting(&said, "a quick answer")
		time.Sleep(patience - time.Millisecond)
		over()
		over = waiting(&said, "slurmrestd")
		time.Sleep(10 * patience)
		synctest.Wait()
		over()
		assert.Equal(t, "waiting for slurmrestd\n", said.String())

		said.Reset()
		Waits(&said)("no terminal")
		time.Sleep(10 * patience)
		synctest.Wait()
		assert.Empty(t, said.String())
	})

	// What is written to the one end of a terminal is typed at the other, which says it again.
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	defer tty.Close()
	over := Waits(tty)("slurmrestd")
	defer over()
	echo := make([]byte, 100)
	n, err := tty.Read(echo)
	require.NoError(t, err)
	assert.Contains(t, string(echo[:n]), "waiting for")
}
