//! gRPC server reflection of the controller: clients such as `grpcurl` learn the services and their types.

use rankguard_proto::FILE_DESCRIPTOR_SET;
use tonic_health::pb::health_server::SERVICE_NAME as HEALTH;
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};
use tonic_reflection::server::v1alpha::{
    ServerReflection as ServerReflectionAlpha, ServerReflectionServer as ServerReflectionAlphaServer,
};

use crate::error::ControllerError;
use crate::grpc_health::SERVICES;

/// Returns the services in the stable version and in the one that older clients use.
pub(crate) fn reflection_services() -> Result<
    (
        ServerReflectionServer<impl ServerReflection>,
        ServerReflectionAlphaServer<impl ServerReflectionAlpha>,
    ),
    ControllerError,
> {
    let builder = || {
        let builder = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .with_service_name(HEALTH);
        let named = SERVICES.into_iter().filter(|name| !name.is_empty());
        named.fold(builder, |builder, name| builder.with_service_name(name))
    };
    let failed = |problem: tonic_reflection::server::Error| ControllerError::Task {
        task: "reflection",
        problem: problem.to_string(),
    };
    Ok((
        builder().build_v1().map_err(failed)?,
        builder().build_v1alpha().map_err(failed)?,
    ))
}
