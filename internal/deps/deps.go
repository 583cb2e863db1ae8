//go:build deps

// Package deps keeps pinned requirements in go.mod until their first user lands.
package deps

import (
	_ "github.com/SlinkyProject/slurm-client/api/v0042"
	_ "github.com/SlinkyProject/slurm-client/api/v0043"
	_ "github.com/SlinkyProject/slurm-client/api/v0044"
	_ "github.com/SlinkyProject/slurm-client/api/v0045"
	_ "github.com/golang-jwt/jwt/v5"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/stretchr/testify/assert"
	_ "github.com/stretchr/testify/require"
	_ "github.com/urfave/cli/v2"
	_ "go.uber.org/goleak"
	_ "k8s.io/api/core/v1"
	_ "k8s.io/apimachinery/pkg/apis/meta/v1"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/kubernetes/fake"
	_ "k8s.io/client-go/informers"
	_ "k8s.io/client-go/tools/clientcmd"
	_ "k8s.io/client-go/tools/events"
	_ "k8s.io/client-go/tools/leaderelection"
	_ "pgregory.net/rapid"
	_ "sigs.k8s.io/yaml"
)
