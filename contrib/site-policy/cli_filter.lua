-- Example for CliFilterPlugins=cli_filter/lua: which kinds of --aml-dist a partition allows.
--
-- Runs in srun, sbatch and salloc, as the user: it advises, and does not protect. A user who sets SLURM_CONF or calls
-- slurmctld himself goes round it; what must hold belongs in job_submit.lua or in the plugin's own arguments.

-- Kinds by partition. A partition without an entry allows all.
local allowed = {
  cpu = { mpi = true, none = true },
  gpu = { pytorch = true, jax = true, none = true },
}

-- Where a job goes that names none (Default=YES); a filter is not told.
local default_partition = "cpu"

-- The kind of an option's text, nil without one.
local function kind_of(text)
  return type(text) == "string" and text:match("^[^,]+") or nil
end

-- The option on the command line; without one, the value of SLURM_AML_DIST.
local function wanted_kind(options)
  local plugin = options["spank"] and options["spank"]["aml_dist"]
  return kind_of(plugin and plugin["aml-dist"]) or kind_of(os.getenv("SLURM_AML_DIST"))
end

local function words(set)
  local list = {}
  for word in pairs(set) do list[#list + 1] = word end
  table.sort(list)
  return table.concat(list, ", ")
end

function slurm_cli_setup_defaults(options, early_pass)
  return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, offset)
  local kind = wanted_kind(options)
  if kind == nil then return slurm.SUCCESS end
  -- A job may name several partitions, and runs in one of them.
  for partition in (options["partition"] or os.getenv("SLURM_JOB_PARTITION") or default_partition):gmatch("[^,]+") do
    local kinds = allowed[partition]
    if kinds ~= nil and not kinds[kind] then
      slurm.log_error("partition %s does not offer --aml-dist=%s; it offers %s", partition, kind, words(kinds))
      return slurm.ERROR
    end
  end
  return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
  return slurm.SUCCESS
end
