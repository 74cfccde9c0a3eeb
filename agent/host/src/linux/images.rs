//! Disks of images, for those who ask for them without a guest.

use std::io;
use std::sync::Arc;

use agent_domain::{ContainerDisk, Namespace};
use agent_plan::Failure;

use super::LinuxHost;
use crate::container_disks::{
    ContainerDisks, PullProgress, RemoveImageError, StoreUsage, StoredImage, Wanted,
};
use crate::facility::ImageStore;
use crate::work::Work;

impl LinuxHost {
    /// What asks the file system goes on beside those who serve.
    async fn of_images<T: Send + 'static, E: From<io::Error> + Send + 'static>(
        &self,
        work: impl FnOnce(&ContainerDisks) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let disks = Arc::clone(&self.container_disks);
        let done = tokio::task::spawn_blocking(move || work(&disks)).await;
        done.unwrap_or_else(|error| Err(io::Error::other(error).into()))
    }
}

impl ImageStore for LinuxHost {
    async fn pull_image(
        &self,
        namespace: &Namespace,
        disk: &ContainerDisk,
    ) -> Result<PullProgress, Failure> {
        let settings = self.settings();
        let wanted = Wanted {
            disk,
            namespace,
            allowed: settings.allowed_paths(namespace),
            registries: &settings.config.registries,
            work: &Work::default(),
        };
        self.container_disks.pull(wanted).await
    }

    async fn list_images(&self) -> io::Result<Vec<StoredImage>> {
        self.of_images(ContainerDisks::list).await
    }

    async fn remove_images(
        &self,
        images: Vec<String>,
    ) -> Result<Vec<StoredImage>, RemoveImageError> {
        self.of_images(move |disks| disks.remove(&images)).await
    }

    async fn prune_images(&self, is_dry: bool) -> io::Result<(Vec<StoredImage>, usize, u64)> {
        self.of_images(move |disks| disks.prune(is_dry)).await
    }

    async fn image_usage(&self) -> io::Result<StoreUsage> {
        self.of_images(ContainerDisks::usage).await
    }
}
