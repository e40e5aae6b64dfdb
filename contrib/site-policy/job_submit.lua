-- Example for JobSubmitPlugins=lua: batch jobs of a partition get a kind where they name none.
--
-- Runs in slurmctld. SLURM_AML_DIST in the job's environment is the weakest request: an option of sbatch or of the srun
-- in the script wins over it, and --aml-dist=none switches it off. Jobs through slurmrestd are reached, too. For steps
-- outside batch jobs use the plugin's own default.PARTITION=KIND.

local default_kind = { gpu = "pytorch" }

-- Where a job goes that names no partition: that with Default=YES.
local function default_partition(partitions)
  for name, partition in pairs(partitions) do
    if partition.flag_default == 1 then return name end
  end
  return ""
end

function slurm_job_submit(job, partitions, user)
  local kind = default_kind[job.partition or default_partition(partitions)]
  if kind == nil or job.script == nil then return slurm.SUCCESS end
  local given = job.environment["SLURM_AML_DIST"]
  if given == nil or given == "" then job.environment["SLURM_AML_DIST"] = kind end
  return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, user)
  return slurm.SUCCESS
end
