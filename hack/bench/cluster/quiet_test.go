package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBusy(t *testing.T) {
	before, err := parseBusy("cpu  100 0 50 800 50 0 0 0 7 0\ncpu0 1 2 3\n")
	require.NoError(t, err)
	after, err := parseBusy("cpu  120 0 60 860 60 0 0 0 27 0\n")
	require.NoError(t, err)
	assert.InDelta(t, 0.3, after.since(before), 1e-9)
	_, err = parseBusy("intr 7\n")
	require.Error(t, err)
}
