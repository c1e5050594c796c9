//! Part of the agent's environment that ranks receive (RG-13).

use std::collections::BTreeMap;
use std::ffi::OsString;

/// Variables that ranks receive by default. A name that ends in `*` matches all names with that prefix.
///
/// The list has the variables that programs need to start and those that tune training libraries on this node. It has
/// no credentials: not those of object stores (`AWS_*`, `GOOGLE_*`, `AZURE_*`), of model hubs (`HF_TOKEN`), of
/// schedulers (`SLURM_JWT`) or of proxies (`https_proxy` may hold a password), nothing of the agent (`RANKGUARD_*`),
/// and nothing that loads code into every program (`LD_PRELOAD`).
pub(crate) const DEFAULT_RANK_ENVIRONMENT: &[&str] = &[
    // User and session.
    "HOME",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_RUNTIME_DIR",
    // Libraries, interpreters and certificates.
    "CONDA_*",
    "CUDA_*",
    "LD_LIBRARY_PATH",
    "PYTHON*",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "VIRTUAL_ENV",
    // Devices and networks.
    "FI_*",
    "GLOO_*",
    "HIP_*",
    "HSA_*",
    "NCCL_*",
    "NVIDIA_*",
    "ROCR_*",
    "UCX_*",
    // Threads and frameworks.
    "GOMP_*",
    "KMP_*",
    "MKL_*",
    "NUMEXPR_*",
    "OMP_*",
    "OPENBLAS_*",
    "TORCH_*",
    "TRITON_*",
    "XLA_*",
];

/// Returns true if a list of names and prefixes matches a name.
pub(crate) fn list_matches(list: &[String], name: &str) -> bool {
    list.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    })
}

/// Returns the variables of `all` that the list allows. Values that are not UTF-8 are left out.
pub(crate) fn allowed_variables(
    list: &[String],
    all: impl Iterator<Item = (OsString, OsString)>,
) -> BTreeMap<String, String> {
    let mut allowed = BTreeMap::new();
    for (name, value) in all {
        let (Ok(name), Ok(value)) = (name.into_string(), value.into_string()) else {
            continue;
        };
        if list_matches(list, &name) {
            allowed.insert(name, value);
        }
    }
    allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_get_listed_variables_and_no_credentials() {
        let list: Vec<String> = DEFAULT_RANK_ENVIRONMENT.iter().map(|name| (*name).to_owned()).collect();
        let names = [
            "PATH",
            "LC_ALL",
            "NCCL_DEBUG",
            "PYTHONPATH",
            "AWS_SECRET_ACCESS_KEY",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "AZURE_STORAGE_KEY",
            "HF_TOKEN",
            "LD_PRELOAD",
            "PATHS",
            "RANKGUARD_IDENTITY_KEY",
        ];
        let all = names.into_iter().map(|name| (name.into(), "x".into()));
        let allowed: Vec<String> = allowed_variables(&list, all).into_keys().collect();
        assert_eq!(allowed, ["LC_ALL", "NCCL_DEBUG", "PATH", "PYTHONPATH"]);
    }
}
