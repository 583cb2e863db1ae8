package slurmrest

import (
	"net/http"

	v0042 "github.com/SlinkyProject/slurm-client/api/v0042"
	v0043 "github.com/SlinkyProject/slurm-client/api/v0043"
	v0044 "github.com/SlinkyProject/slurm-client/api/v0044"
	v0045 "github.com/SlinkyProject/slurm-client/api/v0045"

	"github.com/slurmtide/slurmtide/powersave"
)

// jobAPI is how one data_parser version's requests about jobs are written.
type jobAPI struct {
	jobs       request
	sharing    request // jobs, with how they share their nodes; nil: jobs tells it
	job        func(id string) request
	sharingJob func(id string) request // the same of one job
	states     request                 // without any job_id: of all
	updateJob  func(id string, u powersave.JobUpdate) request
	cancel     func(name string) request
	requeue    func(name string, hold bool) request // nil before v0.0.45
}

// Jobs are read with the flag ALL alone, which leaves out what a job holds on each node,
// the larger part of an answer. They are cancelled with SIGKILL, slurmrestd's default.

func jobsV0042() jobAPI {
	return jobAPI{
		jobs: func(s string) (*http.Request, error) {
			return v0042.NewSlurmV0042GetJobsRequest(s, &v0042.SlurmV0042GetJobsParams{Flags: ptr(v0042.SlurmV0042GetJobsParamsFlagsALL)})
		},
		states: func(s string) (*http.Request, error) { return v0042.NewSlurmV0042GetJobsStateRequest(s, nil) },
		job: func(id string) request {
			return func(s string) (*http.Request, error) {
				return v0042.NewSlurmV0042GetJobRequest(s, id, &v0042.SlurmV0042GetJobParams{Flags: ptr(v0042.SlurmV0042GetJobParamsFlagsALL)})
			}
		},
		updateJob: func(id string, u powersave.JobUpdate) request {
			body := v0042.V0042JobDescMsg{AdminComment: u.AdminComment}
			if !u.Begin.IsZero() {
				body.BeginTime = &v0042.V0042Uint64NoValStruct{Set: ptr(true), Number: ptr(u.Begin.Unix())}
			}
			return func(s string) (*http.Request, error) { return v0042.NewSlurmV0042PostJobRequest(s, id, body) }
		},
		cancel: func(name string) request {
			return func(s string) (*http.Request, error) { return v0042.NewSlurmV0042DeleteJobRequest(s, name, nil) }
		},
	}
}

func jobsV0043() jobAPI {
	return jobAPI{
		jobs: func(s string) (*http.Request, error) {
			return v0043.NewSlurmV0043GetJobsRequest(s, &v0043.SlurmV0043GetJobsParams{Flags: ptr(v0043.SlurmV0043GetJobsParamsFlagsALL)})
		},
		states: func(s string) (*http.Request, error) { return v0043.NewSlurmV0043GetJobsStateRequest(s, nil) },
		job: func(id string) request {
			return func(s string) (*http.Request, error) {
				return v0043.NewSlurmV0043GetJobRequest(s, id, &v0043.SlurmV0043GetJobParams{Flags: ptr(v0043.SlurmV0043GetJobParamsFlagsALL)})
			}
		},
		updateJob: func(id string, u powersave.JobUpdate) request {
			body := v0043.V0043JobDescMsg{AdminComment: u.AdminComment}
			if !u.Begin.IsZero() {
				body.BeginTime = &v0043.V0043Uint64NoValStruct{Set: ptr(true), Number: ptr(u.Begin.Unix())}
			}
			return func(s string) (*http.Request, error) { return v0043.NewSlurmV0043PostJobRequest(s, id, body) }
		},
		cancel: func(name string) request {
			return func(s string) (*http.Request, error) { return v0043.NewSlurmV0043DeleteJobRequest(s, name, nil) }
		},
	}
}

func jobsV0044() jobAPI {
	return jobAPI{
		jobs: func(s string) (*http.Request, error) {
			return v0044.NewSlurmV0044GetJobsRequest(s, &v0044.SlurmV0044GetJobsParams{Flags: ptr(v0044.SlurmV0044GetJobsParamsFlagsALL)})
		},
		states: func(s string) (*http.Request, error) { return v0044.NewSlurmV0044GetJobsStateRequest(s, nil) },
		job: func(id string) request {
			return func(s string) (*http.Request, error) {
				return v0044.NewSlurmV0044GetJobRequest(s, id, &v0044.SlurmV0044GetJobParams{Flags: ptr(v0044.SlurmV0044GetJobParamsFlagsALL)})
			}
		},
		updateJob: func(id string, u powersave.JobUpdate) request {
			body := v0044.V0044JobDescMsg{AdminComment: u.AdminComment}
			if !u.Begin.IsZero() {
				body.BeginTime = &v0044.V0044Uint64NoValStruct{Set: ptr(true), Number: ptr(u.Begin.Unix())}
			}
			return func(s string) (*http.Request, error) { return v0044.NewSlurmV0044PostJobRequest(s, id, body) }
		},
		cancel: func(name string) request {
			return func(s string) (*http.Request, error) { return v0044.NewSlurmV0044DeleteJobRequest(s, name, nil) }
		},
	}
}

func jobsV0045() jobAPI {
	return jobAPI{
		sharing:    jobsV0044().jobs, // has "shared"
		sharingJob: jobsV0044().job,
		jobs: func(s string) (*http.Request, error) {
			return v0045.NewSlurmV0045GetJobsRequest(s, &v0045.SlurmV0045GetJobsParams{Flags: ptr(v0045.SlurmV0045GetJobsParamsFlagsALL)})
		},
		states: func(s string) (*http.Request, error) { return v0045.NewSlurmV0045GetJobsStateRequest(s, nil) },
		job: func(id string) request {
			return func(s string) (*http.Request, error) {
				return v0045.NewSlurmV0045GetJobRequest(s, id, &v0045.SlurmV0045GetJobParams{Flags: ptr(v0045.SlurmV0045GetJobParamsFlagsALL)})
			}
		},
		updateJob: func(id string, u powersave.JobUpdate) request {
			body := v0045.V0045JobDescMsg{AdminComment: u.AdminComment}
			if !u.Begin.IsZero() {
				body.BeginTime = &v0045.V0045Uint64NoValStruct{Set: ptr(true), Number: ptr(u.Begin.Unix())}
			}
			return func(s string) (*http.Request, error) { return v0045.NewSlurmV0045PostJobRequest(s, id, body) }
		},
		cancel: func(name string) request {
			return func(s string) (*http.Request, error) { return v0045.NewSlurmV0045DeleteJobRequest(s, name, nil) }
		},
		requeue: func(name string, hold bool) request {
			body := v0045.V0045OpenapiJobsRequeueQuery{
				Jobs:  &v0045.V0045SelectedStepList{name},
				Flags: &[]v0045.V0045OpenapiJobsRequeueQueryFlags{v0045.Incomplete},
			}
			if hold {
				*body.Flags = append(*body.Flags, v0045.Hold)
			}
			return func(s string) (*http.Request, error) { return v0045.NewSlurmV0045PostJobsRequeueRequest(s, body) }
		},
	}
}

func ptr[T any](v T) *T { return &v }
