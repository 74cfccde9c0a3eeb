//! Disks of images, between the service and the host.

use std::time::UNIX_EPOCH;

use agent_domain::{Namespace, admit_container_disk};
use agent_host::{Host, PullProgress, RemoveImageError, StoredImage};
use agent_plan::{Millis, Timestamp};
use agent_sources::{ApiError, ImageRegistry};
use proto_node::node::{
    GetImageUsageResponse, ListImagesResponse, NodeImage, PruneImagesResponse, PullImageRequest,
    PullImageResponse, RemoveImagesResponse,
};
use proto_node::vmi::ContainerDiskSource;

use super::NodeService;
use crate::{clock, given};

/// What answers to a pull call it.
const KIND: &str = "image";

impl<H: Host> ImageRegistry for NodeService<H> {
    async fn pull_image(&self, pull: &PullImageRequest) -> Result<PullImageResponse, ApiError> {
        let source = ContainerDiskSource {
            image: pull.image.clone(),
            image_pull_secret: pull.pull_secret.clone(),
            path: pull.path.clone(),
            image_pull_policy: pull.pull_policy.clone(),
        };
        let disk = admit_container_disk(source, &pull.namespace, &self.node.configured_caps());
        let mut disk = disk.map_err(|errors| ApiError::Invalid {
            kind: KIND,
            name: pull.image.clone(),
            errors,
        })?;
        given::fill_credentials(&self.objects, &pull.namespace, &mut disk)
            .map_err(|failure| ApiError::Conflict(failure.message))?;
        let namespace: Namespace = pull
            .namespace
            .parse()
            .map_err(|()| ApiError::BadRequest(format!("{:?} is no namespace", pull.namespace)))?;
        match self.host.pull_image(&namespace, &disk).await {
            Ok(PullProgress::Running(progress)) => Ok(PullImageResponse {
                done_bytes: progress.done_bytes,
                total_bytes: progress.total_bytes,
                stage: progress.stage.word().to_owned(),
                ..PullImageResponse::default()
            }),
            Ok(PullProgress::Done(digest)) => Ok(PullImageResponse {
                digest,
                ..PullImageResponse::default()
            }),
            Err(failure) => Err(ApiError::Unavailable(format!(
                "{}: {}",
                failure.reason, failure.message
            ))),
        }
    }

    async fn images(&self) -> Result<ListImagesResponse, ApiError> {
        let images = self.host.list_images().await.map_err(failed)?;
        let images = images.into_iter().map(wire).collect();
        Ok(ListImagesResponse { images })
    }

    async fn remove_images(&self, images: Vec<String>) -> Result<RemoveImagesResponse, ApiError> {
        match self.host.remove_images(images).await {
            Ok(removed) => Ok(RemoveImagesResponse {
                removed: removed.into_iter().map(wire).collect(),
            }),
            Err(error @ RemoveImageError::NotFound(_)) => Err(ApiError::Absent(error.to_string())),
            Err(error @ RemoveImageError::InUse(_)) => Err(ApiError::Conflict(error.to_string())),
            Err(RemoveImageError::Host(error)) => Err(failed(error)),
        }
    }

    async fn image_usage(&self) -> Result<GetImageUsageResponse, ApiError> {
        let usage = self.host.image_usage().await.map_err(failed)?;
        let images = self.host.list_images().await.map_err(failed)?;
        let used = images.iter().filter(|image| image.in_use);
        let bytes = |sum: u64, image: &StoredImage| sum.saturating_add(image.disk_bytes);
        Ok(GetImageUsageResponse {
            directory: usage.directory.display().to_string(),
            capacity_bytes: usage.capacity_bytes,
            available_bytes: usage.available_bytes,
            disks: count(images.len()),
            disk_bytes: images.iter().fold(0, bytes),
            disks_in_use: count(used.clone().count()),
            in_use_bytes: used.fold(0, bytes),
            layers: count(usage.layers),
            layer_bytes: usage.layer_bytes,
            high_percent: u32::try_from(usage.marks.0).unwrap_or(u32::MAX),
            low_percent: u32::try_from(usage.marks.1).unwrap_or(u32::MAX),
        })
    }

    async fn prune_images(&self, is_dry: bool) -> Result<PruneImagesResponse, ApiError> {
        let (removed, layers, layer_bytes) =
            self.host.prune_images(is_dry).await.map_err(failed)?;
        let bytes = |sum: u64, image: &StoredImage| sum.saturating_add(image.disk_bytes);
        Ok(PruneImagesResponse {
            freed_bytes: removed.iter().fold(layer_bytes, bytes),
            removed: removed.into_iter().map(wire).collect(),
            layers: count(layers),
        })
    }
}

fn wire(image: StoredImage) -> NodeImage {
    let since = image.last_used.duration_since(UNIX_EPOCH);
    let millis = since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    });
    NodeImage {
        digest: image.digest,
        names: image.names,
        path_hash: image.path_hash,
        virtual_bytes: image.virtual_bytes,
        disk_bytes: image.disk_bytes,
        last_used: clock::rfc3339(Timestamp::default().plus(Millis(millis))),
        in_use: image.in_use,
        default_instancetype: image.defaults.instancetype,
        default_instancetype_kind: image.defaults.instancetype_kind,
        default_preference: image.defaults.preference,
        default_preference_kind: image.defaults.preference_kind,
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn failed(error: std::io::Error) -> ApiError {
    tracing::error!(%error, "images cannot be inspected");
    ApiError::Internal(format!("images cannot be inspected: {error}"))
}
