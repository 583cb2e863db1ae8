package render

import (
	"cmp"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// ScaledObject is KEDA's, as far as we write one.
type ScaledObject struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace,omitempty"`
	} `json:"metadata"`
	Spec ScaledObjectSpec `json:"spec"`
}

// ScaledObjectSpec says what is scaled, how far, and by whose word.
type ScaledObjectSpec struct {
	ScaleTargetRef  autoscalingv2.CrossVersionObjectReference `json:"scaleTargetRef"`
	PollingInterval int                                       `json:"pollingInterval"`
	CooldownPeriod  int                                       `json:"cooldownPeriod"`
	MinReplicaCount int                                       `json:"minReplicaCount"`
	MaxReplicaCount int                                       `json:"maxReplicaCount"`
	Advanced        struct {
		HorizontalPodAutoscalerConfig struct {
			Behavior autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior"`
		} `json:"horizontalPodAutoscalerConfig"`
	} `json:"advanced"`
	Triggers []Trigger `json:"triggers"`
}

// Trigger is one of KEDA's.
type Trigger struct {
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata"`
}

// Seconds of ScaledObjects.
const (
	pollEvery     = 2  // KEDA is told nothing, so it asks often
	pushPollEvery = 5  // push only wakes up; the way back to zero is found by asking
	coolDown      = 30 // from the last need to zero
)

// NewScaledObject makes the one for a NodeSet. With push the scaler, which is at address, tells KEDA that nodes are needed; otherwise KEDA asks.
func NewScaledObject(set *v1alpha1.NodeSet, address string, push bool) (ScaledObject, error) {
	if each := set.Spec.EachHost; each != nil && each.AlwaysOn {
		return ScaledObject{}, fmt.Errorf("NodeSet %s has spec.eachHost.alwaysOn, with which slurmtide controller writes spec.replicas, too, and neither would come to rest: take alwaysOn out, or do without a ScaledObject", set.Name)
	}
	names, err := slurmconf.ParseHostlist(set.Spec.NodeNames)
	if err != nil {
		return ScaledObject{}, err
	}
	most := names.Len()
	switch limit := set.Spec.MaxPoweredUp; {
	case most == 0 && limit == nil:
		return ScaledObject{}, fmt.Errorf("NodeSet %s has no nodes yet (spec.eachHost): set spec.maxPoweredUp, or render it as it is in the cluster, with its spec.nodeNames", set.Name)
	case most == 0:
		most = int(*limit)
	case limit != nil:
		most = min(most, int(*limit))
	}
	o := ScaledObject{TypeMeta: metav1.TypeMeta{APIVersion: "keda.sh/v1alpha1", Kind: "ScaledObject"}}
	o.Metadata.Name, o.Metadata.Namespace = set.Name, set.Namespace
	rules := func(calm int32) *autoscalingv2.HPAScalingRules {
		return &autoscalingv2.HPAScalingRules{
			StabilizationWindowSeconds: &calm,
			// Without it (Kubernetes 1.35) a need of 11 nodes where there are 10 is passed over.
			Tolerance: new(resource.MustParse("0")),
			// A job starts when it has all its nodes: go there in one step, not by doubling.
			Policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PodsScalingPolicy, Value: max(1000, int32(most)), PeriodSeconds: 15}},
		}
	}
	o.Spec = ScaledObjectSpec{
		ScaleTargetRef:  autoscalingv2.CrossVersionObjectReference{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "NodeSet", Name: set.Name},
		PollingInterval: pollEvery, CooldownPeriod: coolDown, MaxReplicaCount: most,
		Triggers: []Trigger{{Type: "external", Metadata: map[string]string{
			"scalerAddress": cmp.Or(address, "slurmtide-scaler."+set.Namespace+":9442"), "cluster": set.Spec.ClusterRef.Name, "nodeSet": set.Name, "metric": "nodes", "target": "1",
		}}},
	}
	o.Spec.Advanced.HorizontalPodAutoscalerConfig.Behavior = autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(0), ScaleDown: rules(coolDown)}
	if push {
		o.Spec.PollingInterval, o.Spec.Triggers[0].Type = pushPollEvery, "external-push"
	}
	return o, nil
}

// YAML is the object as a file has it.
func (o ScaledObject) YAML() (string, error) {
	text, err := yaml.Marshal(o)
	return string(text), err
}
