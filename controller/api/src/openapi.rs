//! OpenAPI document, made from the table of routes and the types of the documents.

use rankguard_access::AccessRole;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ObjectBuilder, Ref, SchemaFormat, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, KnownFormat, OpenApi, OpenApiBuilder, PathsBuilder, RefOr,
    Required, ResponseBuilder, ResponsesBuilder, Schema,
};

use crate::documents::{AuditDocument, ChangeDocument, ChangeReceipt, HealthDocument, WatchGap, WatchStart};
use crate::problem::Problem;
use crate::query::{LIMIT_DEFAULT, LIMIT_MAX, Parameter, ParameterKind};
use crate::routes::{ChangeRoute, DocumentSchema, ROUTES, Route, RouteContent, document_schema, page_schema};

const DESCRIPTION: &str = "Access to a Rankguard controller: jobs, nodes, cases, plans and the failure catalogue, and changes of \
                           nodes, jobs and cases. Clients send a token (`rankguard token create`) or a client certificate. \
                           Lists have pages: `next` is the cursor of the next page. Errors are problem documents (RFC 9457). \
                           Unknown parameters are refused.";

/// Names of the security schemes.
const TOKEN_SCHEME: &str = "token";
const CERTIFICATE_SCHEME: &str = "certificate";

/// Returns the OpenAPI document as JSON.
pub(crate) fn document() -> String {
    openapi().to_json().unwrap_or_default()
}

fn openapi() -> OpenApi {
    let mut components = ComponentsBuilder::new();
    let mut paths = PathsBuilder::new();
    let own = [
        document_schema::<Problem>(),
        document_schema::<HealthDocument>(),
        document_schema::<ChangeDocument>(),
        document_schema::<WatchStart>(),
        document_schema::<WatchGap>(),
        document_schema::<ChangeReceipt>(),
    ];
    for schema in own {
        components = components.schemas_from_iter(schema.schemas);
    }
    for route in ROUTES {
        let content = RouteDocument::of(route);
        components = components.schemas_from_iter(content.schemas);
        let operation = operation(route, content.media, content.schema);
        let method = if route.method() == hyper::Method::POST {
            HttpMethod::Post
        } else {
            HttpMethod::Get
        };
        paths = paths.path(route.path, PathItem::new(method, operation));
    }
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("rgt_")
        .description(Some("Token of `rankguard token create`."))
        .build();
    let certificate = SecurityScheme::MutualTls {
        description: Some("Certificate of role operator or viewer (`rankguard identity issue`).".to_owned()),
        extensions: None,
    };
    components = components
        .security_scheme(TOKEN_SCHEME, SecurityScheme::Http(bearer))
        .security_scheme(CERTIFICATE_SCHEME, certificate);
    let info = InfoBuilder::new()
        .title("Rankguard controller")
        .version("1")
        .description(Some(DESCRIPTION))
        .build();
    OpenApiBuilder::new()
        .info(info)
        .paths(paths.build())
        .components(Some(components.build()))
        .build()
}

/// Returns the accepted credentials. On loopback without an identity, none are required to read.
fn security(is_open_on_loopback: bool) -> Vec<SecurityRequirement> {
    let none: [&str; 0] = [];
    let mut accepted = vec![
        SecurityRequirement::new(TOKEN_SCHEME, none),
        SecurityRequirement::new(CERTIFICATE_SCHEME, none),
    ];
    if is_open_on_loopback {
        accepted.push(SecurityRequirement::default());
    }
    accepted
}

/// Document of a route with its media type.
struct RouteDocument {
    media: &'static str,
    schema: RefOr<Schema>,
    schemas: Vec<(String, RefOr<Schema>)>,
}

impl RouteDocument {
    fn of(route: &Route) -> Self {
        let DocumentSchema { name, schemas } = match &route.content {
            RouteContent::Audit => page_schema::<AuditDocument>(),
            RouteContent::Change(change) => {
                let body = (change.body)();
                let receipt = document_schema::<ChangeReceipt>();
                let schemas = body.schemas.into_iter().chain(receipt.schemas).collect();
                let name = receipt.name;
                DocumentSchema { name, schemas }
            }
            RouteContent::State { schema, .. } => schema(),
            RouteContent::Live | RouteContent::Ready => document_schema::<HealthDocument>(),
            RouteContent::Watch => {
                let text = ObjectBuilder::new().schema_type(Type::String).description(Some(
                    "Server-sent events: `start` (WatchStart), `case`, `job`, `node` and `nodes` (ChangeDocument), `gap` (WatchGap).",
                ));
                return Self {
                    media: "text/event-stream",
                    schema: text.build().into(),
                    schemas: Vec::new(),
                };
            }
            RouteContent::OpenApi => {
                let any = ObjectBuilder::new().schema_type(Type::Object);
                return Self {
                    media: "application/json",
                    schema: any.build().into(),
                    schemas: Vec::new(),
                };
            }
        };
        Self {
            media: "application/json",
            schema: Ref::from_schema_name(name).into(),
            schemas,
        }
    }
}

fn operation(route: &Route, media: &str, schema: RefOr<Schema>) -> OperationBuilder {
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let found = ResponseBuilder::new()
        .description(route.summary)
        .content(media, content);
    let problem = Ref::from_schema_name("Problem");
    let problem = ContentBuilder::new().schema(Some(RefOr::Ref(problem))).build();
    let problem = ResponseBuilder::new()
        .description("Problem document")
        .content("application/problem+json", problem);
    let mut responses = ResponsesBuilder::new()
        .response("200", found)
        .response("default", problem);
    if !matches!(
        route.content,
        RouteContent::Watch | RouteContent::Live | RouteContent::Ready | RouteContent::Change(_)
    ) {
        let known = ResponseBuilder::new().description("The client has the document (`If-None-Match`)");
        responses = responses.response("304", known);
    }
    let scope = route.scope.word();
    let rights = format!("Least role: {}. Scope of a token: {scope}.", route.role);
    let mut operation = OperationBuilder::new()
        .summary(Some(route.summary))
        .description(Some(rights))
        .operation_id(Some(operation_id(route)))
        .securities(Some(security(route.role == AccessRole::Viewer)))
        .responses(responses.build());
    if let RouteContent::Change(change) = &route.content {
        operation = change_request(operation, change);
    }
    if let Some(name) = path_parameter(route.path) {
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some(route.path_doc))
            .schema(Some(ObjectBuilder::new().schema_type(Type::String)));
        operation = operation.parameter(parameter);
    }
    for parameter in route.parameters {
        let built = ParameterBuilder::new()
            .name(parameter.name)
            .parameter_in(ParameterIn::Query)
            .required(Required::False)
            .description(Some(parameter.doc))
            .schema(Some(parameter_schema(parameter)));
        operation = operation.parameter(built);
    }
    if matches!(route.content, RouteContent::Watch) {
        let parameter = ParameterBuilder::new()
            .name("Last-Event-ID")
            .parameter_in(ParameterIn::Header)
            .required(Required::False)
            .description(Some("Id of the last event that the client has."))
            .schema(Some(ObjectBuilder::new().schema_type(Type::String)));
        operation = operation.parameter(parameter);
    }
    operation
}

/// Adds the body and the headers of a request that changes something.
fn change_request(operation: OperationBuilder, change: &ChangeRoute) -> OperationBuilder {
    let schema = Ref::from_schema_name((change.body)().name);
    let content = ContentBuilder::new().schema(Some(RefOr::Ref(schema))).build();
    let body = RequestBodyBuilder::new()
        .content("application/json", content)
        .required(Some(Required::True))
        .build();
    let header = |name: &str, required, doc: &str| {
        ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Header)
            .required(required)
            .description(Some(doc))
            .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
    };
    let is_required = if change.needs_key {
        Required::True
    } else {
        Required::False
    };
    let key = "Random text of 1 to 64 visible characters; a repetition with it within 24 h changes nothing.";
    let tag = "ETag of the resource; the change is refused if the resource has another one.";
    operation
        .request_body(Some(body))
        .parameter(header("Idempotency-Key", is_required, key))
        .parameter(header("If-Match", Required::False, tag))
}

fn parameter_schema(parameter: &Parameter) -> ObjectBuilder {
    let text = ObjectBuilder::new().schema_type(Type::String);
    match parameter.kind {
        ParameterKind::Limit => ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(1))
            .maximum(Some(LIMIT_MAX))
            .default(Some(LIMIT_DEFAULT.into())),
        ParameterKind::Text => text.min_length(Some(1)).max_length(Some(512)),
        ParameterKind::Time => text.format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))),
        ParameterKind::Flag => ObjectBuilder::new().schema_type(Type::Boolean),
        ParameterKind::Choice(words) => text.enum_values(Some(words.iter().copied())),
    }
}

fn path_parameter(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once('{')?;
    rest.split_once('}').map(|(name, _)| name)
}

/// Returns `getCasesById` for `/api/v1/cases/{id}`.
fn operation_id(route: &Route) -> String {
    let verb = route.method().as_str().to_ascii_lowercase();
    let parts = route
        .path
        .trim_start_matches("/api/v1")
        .split('/')
        .filter(|part| !part.is_empty());
    let word = |part: &str| {
        let inner = part
            .trim_start_matches('{')
            .trim_end_matches('}')
            .trim_end_matches(".json");
        let mut letters = inner.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        let prefix = if part.starts_with('{') { "By" } else { "" };
        first
            .into_iter()
            .fold(prefix.to_owned(), |text, first| text + &first.to_string())
            + letters.as_str()
    };
    parts.fold(verb, |id, part| id + &word(part))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn references<'v>(value: &'v Value, found: &mut BTreeSet<&'v str>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(reference)) = fields.get("$ref") {
                    found.insert(reference);
                }
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_has_a_schema_and_every_operation_an_id_of_its_own() {
        let document: Value = serde_json::from_str(&document()).expect("JSON");
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        assert!(found.len() > 20, "{found:?}");
        for reference in found {
            let pointer = reference.strip_prefix('#').expect("a local reference");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
        let paths = document["paths"].as_object().expect("paths");
        let ids: BTreeSet<&str> = paths
            .values()
            .filter_map(|item| {
                item["get"]["operationId"]
                    .as_str()
                    .or(item["post"]["operationId"].as_str())
            })
            .collect();
        assert_eq!((ids.len(), paths.len()), (ROUTES.len(), ROUTES.len()));
        assert!(ids.contains("getCasesById"), "{ids:?}");
    }
}
