package stack

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Containers of slurmdbd and its database, with Accounting.
const (
	ContainerMariaDB  = "mariadb"
	ContainerSlurmdbd = "slurmdbd"
)

const (
	mariadbPort  = 3306
	slurmdbdPort = 6819
)

// accountingLines are slurm.conf's, before ExtraConf.
var accountingLines = []string{"AccountingStorageType=accounting_storage/slurmdbd", "AccountingStorageHost=localhost"}

// startMariaDB makes a database on a volume that is gone with the pod. Slurm says that snapshot isolation is to be off (accounting.shtml).
const startMariaDB = `mariadb-install-db --datadir=/data/db --skip-test-db --auth-root-authentication-method=normal >/tmp/install.log 2>&1 || { cat /tmp/install.log; exit 1; }
printf "CREATE USER 'slurm'@'%%' IDENTIFIED BY 'simple';\nGRANT ALL ON slurm_acct_db.* TO 'slurm'@'%%';\n" >/tmp/init.sql
exec mariadbd --datadir=/data/db --socket=/tmp/mysqld.sock --pid-file=/tmp/mysqld.pid --bind-address=0.0.0.0 --skip-name-resolve \
	--innodb-snapshot-isolation=OFF --innodb-flush-log-at-trx-commit=0 --init-file=/tmp/init.sql`

// startSlurmdbd gives it files of its own: it wants slurmdbd.conf to be SlurmUser's, mode 0600 (read_slurmdbd_conf), and looks for it and for the key beside slurm.conf.
const startSlurmdbd = `umask 077
mkdir /tmp/etc
cp /etc/slurm/* /tmp/etc/
printf '%s\n' DbdHost=localhost SlurmUser=slurm PidFile=/tmp/slurmdbd.pid AuthType=auth/slurm AuthInfo=use_client_ids AuthAltTypes=auth/jwt \
	AuthAltParameters=jwt_key=/tmp/etc/jwt_hs256.key StorageType=accounting_storage/mysql StorageHost=127.0.0.1 StorageUser=slurm StoragePass=simple LogTimeFormat=iso8601_ms,format_stderr >/tmp/etc/slurmdbd.conf
export SLURM_CONF=/tmp/etc/slurm.conf
exec slurmdbd -D`

// accounting are slurmdbd and its database, each of which listens before the next container is started: slurmctld would end if it had to go by limits
// that it cannot read.
func accounting(o Options) []corev1.Container {
	db := container(ContainerMariaDB, o.MariaDBImage, "/bin/bash", "-euc", startMariaDB)
	db.VolumeMounts = []corev1.VolumeMount{{Name: "state", SubPath: "mariadb", MountPath: "/data"}}
	dbd := container(ContainerSlurmdbd, o.SlurmImage, "/bin/sh", "-euc", startSlurmdbd)
	dbd.VolumeMounts = []corev1.VolumeMount{
		{Name: "etc-slurm", MountPath: "/etc/slurm", ReadOnly: true},
		{Name: "state", SubPath: "slurmdbd", MountPath: "/run/slurmdbd"}, // the socket at which auth/slurm gives out credentials
	}
	for c, port := range map[*corev1.Container]int32{&db: mariadbPort, &dbd: slurmdbdPort} {
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		c.StartupProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}},
			PeriodSeconds: 1, FailureThreshold: 180,
		}
	}
	return []corev1.Container{db, dbd}
}
