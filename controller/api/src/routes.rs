//! Table of the routes: each with its parameters, the schema of its document and the function that makes it. Requests
//! are parsed and authorised by this table, and the OpenAPI document is made from it.

pub(crate) mod audit;
pub(crate) mod cases;
mod catalogue;
mod changes;
mod efficiency;
mod failures;
mod jobs;
mod nodes;
mod plans;

use hyper::Method;
use rankguard_access::AccessRole;
use rankguard_core::DecisionState;
use rankguard_identity::RefusalCounters;
use rankguard_model::Timestamp;
use serde::Serialize;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::change::Change;
use crate::documents::{
    CancelBody, CaseDocument, CaseSummary, CheckpointDocument, ClassDocument, CordonBody, EfficiencyDocument,
    FailureMixDocument, JobDocument, JobSummaryDocument, JobTimeDocument, NodeDocument, NodeHealth, NodeSummary,
    NoteBody, Page, PlanDocument, PlanSummary, ProgressDocument, TaxonomyDocument, UncordonBody,
};
use crate::problem::Problem;
use crate::query::{CURSOR, LIMIT, Parameter, ParameterKind, Query};

/// Route of the API.
#[derive(Debug)]
pub(crate) struct Route {
    /// Path, with at most one parameter in braces.
    pub(crate) path: &'static str,
    pub(crate) summary: &'static str,
    /// Meaning of the parameter of the path; empty without one.
    pub(crate) path_doc: &'static str,
    pub(crate) parameters: &'static [Parameter],
    /// Least role of a caller.
    pub(crate) role: AccessRole,
    /// Part of the cluster that a token must reach.
    pub(crate) scope: ScopeRule,
    pub(crate) content: RouteContent,
}

/// Part of the cluster that a route shows or changes. A token with a scope must have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopeRule {
    /// Nothing of the cluster.
    None,
    /// The whole cluster: only tokens without a scope.
    Whole,
    /// The job of the path.
    Job,
    /// The node of the path.
    Node,
    /// The job of the case of the path, or all nodes that the case names.
    Case,
    /// The job of the plan of the path.
    Plan,
}

impl ScopeRule {
    /// Returns the text of the rule in the OpenAPI document.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Whole => "whole",
            Self::Job => "job",
            Self::Node => "node",
            Self::Case => "case",
            Self::Plan => "plan",
        }
    }
}

/// Content of a route.
#[derive(Debug)]
pub(crate) enum RouteContent {
    /// Document made from the copy of the state.
    State {
        schema: fn() -> DocumentSchema,
        answer: fn(&StateRequest<'_>) -> Result<Vec<u8>, Problem>,
    },
    /// True if the event loop runs.
    Live,
    /// True if evidence and commands are accepted.
    Ready,
    /// Stream of changes.
    Watch,
    /// Entries of the audit log.
    Audit,
    /// Change of the cluster by POST.
    Change(ChangeRoute),
    /// OpenAPI document of all routes.
    OpenApi,
}

/// Route that changes something.
#[derive(Debug)]
pub(crate) struct ChangeRoute {
    /// Name of the change in the audit log if it is refused before its body is read.
    pub(crate) action: &'static str,
    /// Schema of the body of a request.
    pub(crate) body: fn() -> DocumentSchema,
    /// Parses the body of a request for the resource of this name.
    pub(crate) parse: fn(&str, &[u8]) -> Result<Change, Problem>,
    /// Document of the resource that the change concerns, for `If-Match`.
    pub(crate) resource: fn(&StateRequest<'_>) -> Result<Vec<u8>, Problem>,
    /// True if a repeated request would change something twice.
    pub(crate) needs_key: bool,
}

/// Name of a document, with the schemas that it needs.
pub(crate) struct DocumentSchema {
    pub(crate) name: String,
    pub(crate) schemas: Vec<(String, RefOr<Schema>)>,
}

/// Request for a document of the state.
#[derive(Debug)]
pub(crate) struct StateRequest<'r> {
    pub(crate) state: &'r DecisionState,
    /// Time of the request on the controller's clock.
    pub(crate) now: Timestamp,
    /// Parameter of the path; empty without one.
    pub(crate) name: &'r str,
    pub(crate) query: &'r Query,
    /// Refused peers, with the revoked certificates of agents.
    pub(crate) refusals: &'r RefusalCounters,
}

pub(crate) const fn parameter(name: &'static str, kind: ParameterKind, doc: &'static str) -> Parameter {
    Parameter { name, kind, doc }
}

const JOB_STATE: Parameter = parameter(
    "state",
    ParameterKind::Choice(&["pending", "starting", "running", "recovering", "finished", "stopped"]),
    "State of the job.",
);
const NODE_STATE: Parameter = parameter(
    "state",
    ParameterKind::Choice(&["healthy", "cordoned", "lost", "fencing"]),
    "State of the node.",
);
const SCHEDULABLE: Parameter = parameter(
    "schedulable",
    ParameterKind::Flag,
    "True for nodes on which new ranks may be placed, false for the others.",
);
const CASE_JOB: Parameter = parameter("job", ParameterKind::Text, "Name of the job.");
const CASE_NODE: Parameter = parameter(
    "node",
    ParameterKind::Text,
    "Node that the case blames or has evidence of.",
);
const CASE_CLASS: Parameter = parameter(
    "class",
    ParameterKind::Text,
    "Failure class of the verdict, or of its newest correction.",
);
const CASE_LAYER: Parameter = parameter("layer", ParameterKind::Text, "Layer of the verdict.");
const CASE_CATEGORY: Parameter = parameter(
    "taxonomy",
    ParameterKind::Text,
    "Category of a published taxonomy, TAXONOMY:CATEGORY.",
);
const CASE_SINCE: Parameter = parameter("since", ParameterKind::Time, "Earliest time of the first evidence.");
const CASE_UNTIL: Parameter = parameter(
    "until",
    ParameterKind::Time,
    "Time before which the first evidence was observed.",
);
const CASE_DRILLS: Parameter = parameter(
    "drills",
    ParameterKind::Flag,
    "False leaves out cases of drills and simulations; default true.",
);
const CASE_PARAMETERS: &[Parameter] = &[
    LIMIT,
    CURSOR,
    CASE_JOB,
    CASE_NODE,
    CASE_CLASS,
    CASE_LAYER,
    CASE_CATEGORY,
    parameter(
        "state",
        ParameterKind::Choice(&["open", "recovering", "fault-present", "recovered", "closed"]),
        "State of the case.",
    ),
    parameter(
        "open",
        ParameterKind::Flag,
        "True for cases that are handled, of which the fault is present, or that await a decision of an operator; false for \
         the others.",
    ),
    CASE_SINCE,
    CASE_UNTIL,
    CASE_DRILLS,
];
const EFFICIENCY_PARAMETERS: &[Parameter] = &[parameter(
    "job",
    ParameterKind::Text,
    "Names of jobs, separated by commas; all jobs without it.",
)];
const FAILURE_PARAMETERS: &[Parameter] = &[
    parameter(
        "by",
        ParameterKind::Text,
        "Grouping: `class` (default), `layer`, `blamed`, `node`, `failure-domain`, `job`, `week`, or the id of a published taxonomy.",
    ),
    CASE_JOB,
    CASE_NODE,
    CASE_CLASS,
    CASE_LAYER,
    CASE_CATEGORY,
    CASE_SINCE,
    CASE_UNTIL,
    CASE_DRILLS,
];

const fn state<T: ToSchema>(
    path: &'static str,
    summary: &'static str,
    parameters: &'static [Parameter],
    answer: fn(&StateRequest<'_>) -> Result<Vec<u8>, Problem>,
) -> Route {
    Route {
        path,
        summary,
        path_doc: "",
        parameters,
        role: AccessRole::Viewer,
        scope: ScopeRule::Whole,
        content: RouteContent::State {
            schema: document_schema::<T>,
            answer,
        },
    }
}

/// Returns the route of a list of these entries.
const fn list<T: ToSchema>(
    path: &'static str,
    summary: &'static str,
    parameters: &'static [Parameter],
    answer: fn(&StateRequest<'_>) -> Result<Vec<u8>, Problem>,
) -> Route {
    Route {
        path,
        summary,
        path_doc: "",
        parameters,
        role: AccessRole::Viewer,
        scope: ScopeRule::Whole,
        content: RouteContent::State {
            schema: page_schema::<T>,
            answer,
        },
    }
}

const fn plain(path: &'static str, summary: &'static str, content: RouteContent) -> Route {
    Route {
        path,
        summary,
        path_doc: "",
        parameters: &[],
        role: AccessRole::Viewer,
        scope: ScopeRule::None,
        content,
    }
}

const fn change<T: ToSchema>(
    path: &'static str,
    action: &'static str,
    summary: &'static str,
    parse: fn(&str, &[u8]) -> Result<Change, Problem>,
    resource: fn(&StateRequest<'_>) -> Result<Vec<u8>, Problem>,
) -> Route {
    Route {
        path,
        summary,
        path_doc: "",
        parameters: &[],
        role: AccessRole::Operator,
        scope: ScopeRule::Whole,
        content: RouteContent::Change(ChangeRoute {
            action,
            body: document_schema::<T>,
            parse,
            resource,
            needs_key: false,
        }),
    }
}

impl Route {
    const fn of(mut self, path_doc: &'static str) -> Self {
        self.path_doc = path_doc;
        self
    }

    const fn within(mut self, scope: ScopeRule) -> Self {
        self.scope = scope;
        self
    }

    const fn with_parameters(mut self, parameters: &'static [Parameter]) -> Self {
        self.parameters = parameters;
        self
    }

    const fn for_role(mut self, role: AccessRole) -> Self {
        self.role = role;
        self
    }

    /// Requires an idempotency key.
    const fn with_key(mut self) -> Self {
        if let RouteContent::Change(change) = &mut self.content {
            change.needs_key = true;
        }
        self
    }

    /// Returns the method of requests; GET includes HEAD.
    pub(crate) fn method(&self) -> Method {
        if matches!(self.content, RouteContent::Change(_)) {
            Method::POST
        } else {
            Method::GET
        }
    }
}

/// Routes of the API, in the order of the document.
pub(crate) static ROUTES: &[Route] = &[
    plain(
        "/api/v1/audit",
        "Changes and refused changes with their authors, newest first",
        RouteContent::Audit,
    )
    .with_parameters(audit::PARAMETERS)
    .for_role(AccessRole::Admin)
    .within(ScopeRule::Whole),
    list::<CaseSummary>("/api/v1/cases", "Cases, newest first", CASE_PARAMETERS, cases::list),
    state::<CaseDocument>(
        "/api/v1/cases/{id}",
        "Case with its evidence, reasoning and plan",
        &[],
        cases::one,
    )
    .of("Number of the case.")
    .within(ScopeRule::Case),
    change::<NoteBody>(
        "/api/v1/cases/{id}/notes",
        "case.note",
        "Acknowledges, comments, corrects or closes a case",
        changes::note,
        cases::one,
    )
    .of("Number of the case.")
    .within(ScopeRule::Case)
    .with_key(),
    state::<ClassDocument>(
        "/api/v1/classes/{id}",
        "Failure class: meaning, action and places in the literature",
        &[],
        catalogue::class,
    )
    .of("Id or alias of the class.")
    .within(ScopeRule::None),
    state::<EfficiencyDocument>(
        "/api/v1/efficiency",
        "Use of the wall time of jobs, and their effective training time ratio",
        EFFICIENCY_PARAMETERS,
        efficiency::all,
    ),
    state::<FailureMixDocument>(
        "/api/v1/failures",
        "Cases counted by class, layer, blamed part, node, failure domain, or category of a published taxonomy",
        FAILURE_PARAMETERS,
        failures::mix,
    ),
    list::<NodeHealth>(
        "/api/v1/health/nodes",
        "Health of the nodes for tenants and schedulers, by name",
        &[LIMIT, CURSOR, SCHEDULABLE],
        nodes::health,
    ),
    plain("/healthz", "Succeeds while the event loop runs", RouteContent::Live),
    list::<JobSummaryDocument>("/api/v1/jobs", "Jobs, by name", &[LIMIT, CURSOR, JOB_STATE], jobs::list),
    state::<JobDocument>("/api/v1/jobs/{name}", "Job with its ranks", &[], jobs::one)
        .of("Name of the job.")
        .within(ScopeRule::Job),
    change::<CancelBody>(
        "/api/v1/jobs/{name}/cancel",
        "job.cancel",
        "Cancels a job permanently",
        changes::cancel,
        jobs::one,
    )
    .of("Name of the job.")
    .within(ScopeRule::Job),
    state::<JobTimeDocument>(
        "/api/v1/jobs/{name}/efficiency",
        "Use of the wall time of a job, and its effective training time ratio",
        &[],
        efficiency::one,
    )
    .of("Name of the job.")
    .within(ScopeRule::Job),
    list::<CheckpointDocument>(
        "/api/v1/jobs/{name}/checkpoints",
        "Committed checkpoints of a job, newest first",
        &[LIMIT, CURSOR],
        jobs::checkpoints,
    )
    .of("Name of the job.")
    .within(ScopeRule::Job),
    state::<ProgressDocument>(
        "/api/v1/jobs/{name}/progress",
        "Reported steps of a job with loss and step time, oldest first",
        &[],
        jobs::progress,
    )
    .of("Name of the job.")
    .within(ScopeRule::Job),
    list::<NodeSummary>(
        "/api/v1/nodes",
        "Nodes, by name",
        &[LIMIT, CURSOR, NODE_STATE, SCHEDULABLE],
        nodes::list,
    ),
    state::<NodeDocument>(
        "/api/v1/nodes/{name}",
        "Node with its agent, cordon and devices",
        &[],
        nodes::one,
    )
    .of("Name of the node.")
    .within(ScopeRule::Node),
    change::<CordonBody>(
        "/api/v1/nodes/{name}/cordon",
        "node.cordon",
        "Cordons a node: no new ranks are placed on it",
        changes::cordon,
        nodes::one,
    )
    .of("Name of the node.")
    .within(ScopeRule::Node),
    change::<CordonBody>(
        "/api/v1/nodes/{name}/drain",
        "node.drain",
        "Cordons a node and moves its job after its next checkpoint",
        changes::drain,
        nodes::one,
    )
    .of("Name of the node.")
    .within(ScopeRule::Node),
    change::<UncordonBody>(
        "/api/v1/nodes/{name}/uncordon",
        "node.uncordon",
        "Uncordons a node and clears the findings against it",
        changes::uncordon,
        nodes::one,
    )
    .of("Name of the node.")
    .within(ScopeRule::Node),
    plain("/api/v1/openapi.json", "This document", RouteContent::OpenApi),
    list::<PlanSummary>(
        "/api/v1/plans",
        "Plans, newest first",
        &[LIMIT, CURSOR, parameter("job", ParameterKind::Text, "Name of the job.")],
        plans::list,
    ),
    state::<PlanDocument>(
        "/api/v1/plans/{id}",
        "Plan with its nodes, reasons and alternatives",
        &[],
        plans::one,
    )
    .of("Number of the plan.")
    .within(ScopeRule::Plan),
    plain(
        "/readyz",
        "Succeeds while evidence and commands are accepted",
        RouteContent::Ready,
    ),
    list::<TaxonomyDocument>(
        "/api/v1/taxonomies",
        "Published taxonomies of failures",
        &[],
        catalogue::taxonomies,
    )
    .within(ScopeRule::None),
    plain(
        "/api/v1/watch",
        "Changes of cases, jobs and nodes as server-sent events",
        RouteContent::Watch,
    )
    .within(ScopeRule::Whole),
];

/// Returns the least role of the route of a request; that of reading for an unknown path.
pub(crate) fn least_role(method: &Method, path: &str) -> AccessRole {
    let is_read = method != Method::POST;
    let fits = |route: &&Route| {
        let mut segments = path.split('/');
        let mut parts = route.path.split('/');
        let fit = parts.by_ref().all(|part| match segments.next() {
            Some(segment) => part.starts_with('{') || part == segment,
            None => false,
        });
        fit && segments.next().is_none() && (route.method() == Method::GET) == is_read
    };
    ROUTES.iter().find(fits).map_or(AccessRole::Viewer, |route| route.role)
}

/// Returns the schemas of a document.
pub(crate) fn document_schema<T: ToSchema>() -> DocumentSchema {
    let name = T::name().into_owned();
    let mut schemas = vec![(name.clone(), <T as PartialSchema>::schema())];
    T::schemas(&mut schemas);
    DocumentSchema { name, schemas }
}

/// Returns the schemas of a page of these entries.
pub(crate) fn page_schema<T: ToSchema>() -> DocumentSchema {
    let entry = document_schema::<T>();
    // utoipa names every page alike.
    let name = format!("{}Page", entry.name);
    let mut schemas = entry.schemas;
    schemas.push((name.clone(), Page::<T>::schema()));
    DocumentSchema { name, schemas }
}

/// Writes a document as JSON.
pub(crate) fn json(document: &impl Serialize) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(document).map_err(|problem| {
        let status = hyper::StatusCode::INTERNAL_SERVER_ERROR;
        Problem::new(
            status,
            "internal",
            "the document cannot be written",
            problem.to_string(),
        )
    })
}

/// Parses the number in a path.
pub(crate) fn number(text: &str, what: &str, list: &str) -> Result<u64, Problem> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number);
    number.ok_or_else(|| Problem::absent(what, text, list))
}
