//! Job to which a pod belongs, by the labels of its operator.
//!
//! | label | written by |
//! |---|---|
//! | `jobset.sigs.k8s.io/jobset-name` | JobSet; a TrainJob of Kubeflow Trainer has a JobSet of its own name |
//! | `trainer.kubeflow.org/trainjob-ancestor-step` | Kubeflow Trainer, beside the one above |
//! | `training.kubeflow.org/job-name` and `training.kubeflow.org/operator-name` | Kubeflow Training Operator: PyTorchJob, MPIJob and others |
//! | `ray.io/cluster` | KubeRay |
//! | `leaderworkerset.sigs.k8s.io/name` | LeaderWorkerSet |
//! | `volcano.sh/job-name` | Volcano |
//! | `batch.kubernetes.io/job-name`, `job-name` | the Job controller, the second before Kubernetes 1.27 |

use crate::objects::PodObject;

/// Label of a job name and the kind of the job, in order of preference: operators make Jobs, too.
const JOB_LABELS: &[(&str, &str)] = &[
    ("jobset.sigs.k8s.io/jobset-name", "JobSet"),
    ("ray.io/cluster", "RayCluster"),
    ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
    ("volcano.sh/job-name", "Volcano job"),
    ("batch.kubernetes.io/job-name", "Job"),
    ("job-name", "Job"),
];
/// Job name of the Kubeflow Training Operator.
const TRAINING_JOB_LABEL: &str = "training.kubeflow.org/job-name";
/// Operator behind that job name: `pytorchjob-controller`.
const TRAINING_OPERATOR_LABEL: &str = "training.kubeflow.org/operator-name";
/// Step of a TrainJob; its job name is that of the JobSet.
const TRAIN_JOB_STEP_LABEL: &str = "trainer.kubeflow.org/trainjob-ancestor-step";
/// Annotation of pods that the kubelet reads from files; the API server cannot end them.
const MIRROR_POD_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Job to which a pod belongs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodJob {
    /// Kind of the job: `JobSet`, `TrainJob`, `PyTorchJob`.
    pub kind: String,
    /// Namespace of the job.
    pub namespace: String,
    /// Name of the job.
    pub name: String,
}

impl std::fmt::Display for PodJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// Reason why a pod is not evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictionExemption {
    /// Pod of a DaemonSet, which would place it on the node again.
    DaemonSet,
    /// Pod that the kubelet runs from a file of the node.
    MirrorPod,
    /// Pod that has ended.
    Ended,
    /// Pod that is being deleted.
    Ending,
}

impl EvictionExemption {
    /// Text for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::DaemonSet => "of a DaemonSet",
            Self::MirrorPod => "of the kubelet",
            Self::Ended => "has ended",
            Self::Ending => "is ending",
        }
    }
}

/// Returns the job of a pod.
pub fn pod_job(pod: &PodObject) -> Option<PodJob> {
    let label = |key: &str| pod.metadata.labels.get(key).map(String::as_str);
    let job = |kind: String, name: &str| PodJob {
        kind,
        namespace: pod.metadata.namespace.clone(),
        name: name.to_owned(),
    };
    if let Some(name) = label(TRAINING_JOB_LABEL) {
        let kind = label(TRAINING_OPERATOR_LABEL).map_or("training job", training_kind);
        return Some(job(kind.to_owned(), name));
    }
    let (kind, name) = JOB_LABELS.iter().find_map(|(key, kind)| Some((*kind, label(key)?)))?;
    let is_train_job = kind == "JobSet" && label(TRAIN_JOB_STEP_LABEL).is_some();
    let kind = if is_train_job { "TrainJob" } else { kind };
    Some(job(kind.to_owned(), name))
}

fn training_kind(operator: &str) -> &str {
    match operator {
        "pytorchjob-controller" => "PyTorchJob",
        "mpijob-controller" => "MPIJob",
        "tfjob-controller" => "TFJob",
        "xgboostjob-controller" => "XGBoostJob",
        "paddlejob-controller" => "PaddleJob",
        "jaxjob-controller" => "JAXJob",
        _ => "training job",
    }
}

/// Returns the reason why a pod is not evicted; `None` if it is.
pub fn eviction_exemption(pod: &PodObject) -> Option<EvictionExemption> {
    let meta = &pod.metadata;
    let is_of_daemon_set = |owner: &crate::objects::OwnerReference| owner.controller && owner.kind == "DaemonSet";
    if meta.annotations.contains_key(MIRROR_POD_ANNOTATION) {
        Some(EvictionExemption::MirrorPod)
    } else if meta.owner_references.iter().any(is_of_daemon_set) {
        Some(EvictionExemption::DaemonSet)
    } else if matches!(pod.status.phase.as_str(), "Succeeded" | "Failed") {
        Some(EvictionExemption::Ended)
    } else if meta.deletion_timestamp.is_some() {
        Some(EvictionExemption::Ending)
    } else {
        None
    }
}

/// Returns the jobs of pods that have not ended, each once.
pub fn disturbed_jobs(pods: &[PodObject]) -> Vec<PodJob> {
    let is_live = |pod: &&PodObject| !matches!(eviction_exemption(pod), Some(EvictionExemption::Ended));
    let mut jobs: Vec<PodJob> = pods.iter().filter(is_live).filter_map(pod_job).collect();
    jobs.sort();
    jobs.dedup();
    jobs
}
