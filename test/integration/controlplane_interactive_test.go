//go:build integration && controlplane

package integration

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// standIn is called like jupyter, and answers whoever connects to the port that it is told. Perl is in every image of Debian.
const standIn = `#!/usr/bin/perl
use IO::Socket::INET;
my ($port) = map { /^--port=(\d+)$/ } @ARGV;
my $server = IO::Socket::INET->new(LocalPort => $port, Listen => 5, ReuseAddr => 1) or die "port $port: $!";
while (my $client = $server->accept) { print $client "jupyter @ARGV\n"; close $client }
`

// testInteractive runs the commands of docs/interactive.md.
func (p *plane) testInteractive(t *testing.T) {
	out, err := p.ssh("alice", "alice", `srun --pty bash -c 'tty; id -u; echo "on $(hostname)"'`, "-tt")
	require.NoError(t, err)
	assert.Regexp(t, `(?s)/dev/pts/\d+\s+2001\s+on cpu-\d`, out, "a terminal on a node, which knows her by her number")
	out = p.alice("salloc -N2 --ntasks-per-node=1 srun hostname 2>/dev/null | sort")
	assert.Regexp(t, `^cpu-\d\ncpu-\d$`, out)

	// Jupyter, by the example.
	script, err := os.ReadFile("../../docs/examples/jupyter.sh")
	require.NoError(t, err)
	p.write("jupyter.sh", string(script))
	p.write("bin/jupyter", standIn)
	id := submitted.FindString(p.alice("chmod 0755 bin/jupyter; PATH=$HOME/bin:$PATH sbatch --parsable jupyter.sh"))
	require.NotEmpty(t, id)
	p.waitJob(id, "RUNNING")
	said := regexp.MustCompile(`ssh -N -L 8888:(\S+:\d+) alice@<login>`)
	var target []string
	p.eventually("the job to say how it is reached", func() (bool, string) {
		out, err := p.ssh("alice", "alice", "cat jupyter-"+id+".log")
		target = said.FindStringSubmatch(out)
		return target != nil, fmt.Sprint(out, err)
	})
	assert.Contains(t, target[1], ".tide-nodes."+p.ns+".svc.")
	p.eventually("an answer through the login pod", func() (bool, string) { // -W is one connection of what -L makes
		out, err := p.ssh("alice", "alice", "", "-o", "StrictHostKeyChecking=yes", "-W", target[1])
		return err == nil && strings.HasPrefix(out, "jupyter lab --no-browser --ip=0.0.0.0 --port="), fmt.Sprint(out, err)
	})
	p.alice("scancel " + id)
	p.waitJob(id, "CANCELLED")
}

// write makes a file in alice's home directory.
func (p *plane) write(name, text string) {
	p.t.Helper()
	p.alice("mkdir -p $(dirname " + name + "); cat >" + name + " <<'EOT'\n" + text + "\nEOT")
}

// testJump has alice come to the node of a job from outside, through the login pod, as docs/interactive.md has it in ~/.ssh/config.
func (p *plane) testJump(t *testing.T, node string) {
	proxy := "ProxyCommand=ssh -F none -i /tmp/alice -o IdentitiesOnly=yes -o BatchMode=yes -o UserKnownHostsFile=/tmp/known_hosts -W %h:%p alice@tide-login"
	out, err := p.sshTo("alice", "alice", node+".tide-nodes", "hostname", "-o", "HostKeyAlias=doors", "-o", "StrictHostKeyChecking=yes", "-o", proxy)
	require.NoError(t, err)
	assert.Equal(t, node, out)
}
