-- job_submit.lua: jobs do not ask slurmd for their user's environment. sbatch --export=NONE, sbatch --get-user-env and scrontab have it run a login shell in
-- namespaces of its own (env.c, env_array_user_default); in a pod without CAP_SYS_ADMIN slurmd ends for that.
function slurm_job_submit(job, partitions, uid)
	if job.environment["SLURM_GET_USER_ENV"] then
		job.environment["SLURM_GET_USER_ENV"] = "0"
	end
	return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
	return slurm.SUCCESS
end
