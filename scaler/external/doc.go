// Package external is the external scaler that KEDA asks: it answers from the newest figures of scaler/watch how many nodes,
// GPUs, CPUs or jobs a trigger's nodes are needed for. See docs/scaler.md for what triggers may say.
//
// What cannot be answered is an error, and never 0: KEDA then leaves the target alone, and shows the error's text on
// the ScaledObject, as long as it is GetMetrics' or IsActive's (see Service.GetMetricSpec).
//
//	InvalidArgument    metadata that make no sense, or contradict others; names the key and what was probably meant
//	NotFound           a cluster, NodeSet or partition that does not exist, or a partition without a NodeSet
//	Unavailable        Slurm cannot be read, or was last read too long ago
//	ResourceExhausted  a message over the limit, or too many different node shapes
package external
