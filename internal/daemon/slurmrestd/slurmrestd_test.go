package slurmrestd

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/internal/slurmrest"
)

func TestTokens(t *testing.T) {
	t.Setenv("SLURM_JWT", "")
	assert.Equal(t, slurmrest.KeyFile{Path: "/key", User: "slurm"}, Tokens("/key", "slurm"))
	assert.Equal(t, slurmrest.Scontrol{User: "slurm"}, Tokens("", "slurm"))
	t.Setenv("SLURM_JWT", "token")
	assert.Equal(t, slurmrest.Static("token"), Tokens("", "slurm"))
	assert.Equal(t, slurmrest.KeyFile{Path: "/key", User: "slurm"}, Tokens("/key", "slurm"), "a key makes tokens that do not expire for good")
}
