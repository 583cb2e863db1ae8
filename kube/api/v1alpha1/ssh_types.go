package v1alpha1

// SSHOptions are whom sshd lets in, and as what it shows itself: in the pods of a LoginSet, and of a NodeSet with ssh.
type SSHOptions struct {
	// Public keys that let root in, as in authorized_keys. Without them root is kept out.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	RootSSHAuthorizedKeys string `json:"rootSshAuthorizedKeys,omitempty"`

	// ConfigMaps with the public keys that let users in: under each user's name what would stand in authorized_keys. Of later ones win.
	// Changes count within a minute or two. Keys in ~/.ssh/authorized_keys, and in sssd, count as well.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	AuthorizedKeysRefs []ObjectRef `json:"authorizedKeysRefs,omitempty"`

	// A Secret with sshd's host keys, for names that clients know already: ssh_host_ed25519_key and its like, those that there are. Default: keys are
	// made once, in the Secret <name>-login-host-keys of a LoginSet, <name>-ssh-host-keys of a NodeSet.
	//
	// +optional
	HostKeysRef *ObjectRef `json:"hostKeysRef,omitempty"`

	// Lines for sshd_config, in front of those that Slurmtide can do without. A change takes new pods: those of a LoginSet are replaced, with the sessions
	// in them, those of a NodeSet as updateStrategy says.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	ExtraSshdConfig string `json:"extraSshdConfig,omitempty"`
}

// UserOptions are where a pod's users stand.
type UserOptions struct {
	// A ConfigMap with users, for sites without sssd: passwd and, if wanted, group hold lines as in the files of that name in /etc. User
	// and group IDs are 500 or more. Changes count within a minute or two. The image needs libnss-extrausers.
	//
	// +optional
	UsersRef *ObjectRef `json:"usersRef,omitempty"`

	// A Secret with sssd.conf, under the key that is named. Then sssd runs in a container of its own; other keys of the Secret, certificates for example, lie
	// in /etc/slurmtide/sssd. A change restarts sssd alone, within a minute or two.
	//
	// +optional
	SssdConfRef *KeyRef `json:"sssdConfRef,omitempty"`
}

// NodeSetSSH lets users into nodes.
type NodeSetSSH struct {
	// Run sshd beside slurmd, in the same container.
	Enabled bool `json:"enabled"`

	// sshd's port.
	//
	// +optional
	// +kubebuilder:default=22
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	SSHOptions `json:",inline"`
}
