//go:build integration && controlplane

package integration

import (
	"crypto/x509"
	"os"
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// startMariaDB starts one, and keeps its data when it is not new. Slurm says that snapshot isolation is to be off (accounting.shtml).
const startMariaDB = `set -eu
[ -d /var/lib/mysql/mysql ] || mariadb-install-db --datadir=/var/lib/mysql --skip-test-db --auth-root-authentication-method=normal >/tmp/install.log 2>&1 || { cat /tmp/install.log; exit 1; }
echo "CREATE USER IF NOT EXISTS 'slurm'@'%' IDENTIFIED BY '$PASSWORD'; GRANT ALL ON slurm_acct_db.* TO 'slurm'@'%';" | sed 's/; /;\n/' >/tmp/init.sql
exec mariadbd --datadir=/var/lib/mysql --socket=/tmp/mysqld.sock --pid-file=/tmp/mysqld.pid --bind-address=0.0.0.0 --skip-name-resolve \
	--innodb-snapshot-isolation=OFF --init-file=/tmp/init.sql --ssl-cert=/tls/tls.crt --ssl-key=/tls/tls.key --ssl-ca=/tls/client-ca.crt`

// mariadb is the database of a test. Its pod may go and come back.
type mariadb struct {
	p   *plane
	dir string // its data, on this machine; "": in the pod, and gone with it
}

// mariadbPassword has what slurmdbd.conf has a meaning for.
const mariadbPassword = `p#s"s=w\d`

// newMariaDB makes its Service and all certificates, and no pod yet.
func newMariaDB(p *plane) *mariadb {
	p.t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", p.ns+"-mariadb-")
	require.NoError(p.t, err)
	require.NoError(p.t, os.Chmod(dir, 0o777))
	p.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cert, key, ca := selfSigned(p.t, "mariadb", x509.ExtKeyUsageServerAuth)
	clientCert, clientKey, clientCA := selfSigned(p.t, "slurmdbd", x509.ExtKeyUsageClientAuth)
	read := func(file string) []byte {
		text, err := os.ReadFile(file)
		require.NoError(p.t, err)
		return text
	}
	p.createSecret("mariadb-tls", map[string][]byte{"tls.crt": read(cert), "tls.key": read(key), "client-ca.crt": clientCA})
	p.createSecret("slurmdbd-tls", map[string][]byte{"tls.crt": read(clientCert), "tls.key": read(clientKey), "ca.crt": ca, "no-ca.crt": []byte("nonsense\n")})
	_, err = p.kube.CoreV1().Services(p.ns).Create(p.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "mariadb"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "mariadb"}, Ports: []corev1.ServicePort{{Port: 3306, TargetPort: intstr.FromInt32(3306)}},
		},
	}, metav1.CreateOptions{})
	require.NoError(p.t, err)
	return &mariadb{p, dir}
}

func (p *plane) createSecret(name string, data map[string][]byte) {
	p.t.Helper()
	_, err := p.kube.CoreV1().Secrets(p.ns).Create(p.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
	require.NoError(p.t, err)
}

func (m *mariadb) start() {
	p := m.p
	p.t.Helper()
	data := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: m.dir}}
	if m.dir == "" {
		data = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "mariadb", Labels: map[string]string{"app": "mariadb"}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  new(false),
			TerminationGracePeriodSeconds: new(int64(20)),
			SecurityContext:               &corev1.PodSecurityContext{RunAsUser: new(int64(1000)), RunAsGroup: new(int64(1000)), FSGroup: new(int64(1000))},
			Containers: []corev1.Container{{
				Name: "mariadb", Image: "slurmtide/mariadb:test", ImagePullPolicy: corev1.PullNever, Command: []string{"/bin/bash", "-c", startMariaDB},
				Env:            []corev1.EnvVar{{Name: "PASSWORD", Value: strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(mariadbPassword)}},
				VolumeMounts:   []corev1.VolumeMount{{Name: "data", MountPath: "/var/lib/mysql"}, {Name: "tls", MountPath: "/tls"}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(3306)}}, PeriodSeconds: 1},
			}},
			Volumes: []corev1.Volume{
				{Name: "data", VolumeSource: data},
				{Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "mariadb-tls"}}},
			},
		},
	}
	p.eventually("the pod of MariaDB to be made", func() (bool, string) {
		_, err := p.kube.CoreV1().Pods(p.ns).Create(p.ctx, pod, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) { // the one before is on its way out
			require.NoError(p.t, err)
		}
		return err == nil, "it is there"
	})
	p.eventually("MariaDB to listen", func() (bool, string) {
		pod, err := p.kube.CoreV1().Pods(p.ns).Get(p.ctx, "mariadb", metav1.GetOptions{})
		require.NoError(p.t, err)
		states := pod.Status.ContainerStatuses
		return len(states) == 1 && states[0].Ready, string(pod.Status.Phase)
	})
}

// stop ends it. Its data stays.
func (m *mariadb) stop() {
	p := m.p
	p.t.Helper()
	require.NoError(p.t, p.kube.CoreV1().Pods(p.ns).Delete(p.ctx, "mariadb", metav1.DeleteOptions{}))
	p.eventually("MariaDB to end", func() (bool, string) {
		_, err := p.kube.CoreV1().Pods(p.ns).Get(p.ctx, "mariadb", metav1.GetOptions{})
		return apierrors.IsNotFound(err), "it is there"
	})
}

// ask runs SQL in it, as root.
func (m *mariadb) ask(sql string) string {
	p := m.p
	p.t.Helper()
	out, stderr, err := p.ExecPod(p.ctx, "mariadb", nil, "mariadb", "mariadb", "--socket=/tmp/mysqld.sock", "--user=root", "--skip-column-names", "--batch", "-e", sql)
	require.NoError(p.t, err, "%s: %s", sql, stderr)
	return strings.TrimSpace(out)
}

// remove takes all of it away.
func (m *mariadb) remove() {
	m.p.t.Helper()
	m.stop()
	runKubectl(m.p.t, "-n", m.p.ns, "delete", "service/mariadb", "secret/mariadb-tls", "secret/slurmdbd-tls")
}
