//! Disks of images over gRPC.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use proto_node::node::image_service_server::ImageService;
use proto_node::node::{
    GetImageUsageRequest, GetImageUsageResponse, ListImagesRequest, ListImagesResponse,
    PruneImagesRequest, PruneImagesResponse, PullImageRequest, PullImageResponse,
    RemoveImagesRequest, RemoveImagesResponse,
};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

use crate::access::Permit;
use crate::error::ApiError;
use crate::node_view::{AnsweredCall, NodeView};

/// Between two words about a pull.
const PAUSE: Duration = Duration::from_millis(200);

/// Words that a caller may be behind; a pull waits for nobody.
const BACKLOG: usize = 4;

/// Most images that are named in one call.
const MAX_NAMED: usize = 1000;

/// The agent, as the service of images sees it.
pub trait ImageRegistry: Clone + Send + Sync + 'static {
    /// Goes on with a pull, for a second or so: how far it is, with the digest when it is done.
    ///
    /// # Errors
    /// Why there is no such image; a pull that failed is not begun again.
    fn pull_image(
        &self,
        pull: &PullImageRequest,
    ) -> impl Future<Output = Result<PullImageResponse, ApiError>> + Send;

    /// All that are kept.
    ///
    /// # Errors
    /// [`ApiError::Internal`].
    fn images(&self) -> impl Future<Output = Result<ListImagesResponse, ApiError>> + Send;

    /// Removes some by digest or name.
    ///
    /// # Errors
    /// [`ApiError::NotFound`], [`ApiError::Conflict`] for one that a guest has.
    fn remove_images(
        &self,
        images: Vec<String>,
    ) -> impl Future<Output = Result<RemoveImagesResponse, ApiError>> + Send;

    /// Usage of the image store.
    ///
    /// # Errors
    /// [`ApiError::Internal`].
    fn image_usage(&self) -> impl Future<Output = Result<GetImageUsageResponse, ApiError>> + Send;

    /// Removes all that no guest has, or says what would go.
    ///
    /// # Errors
    /// [`ApiError::Internal`].
    fn prune_images(
        &self,
        is_dry: bool,
    ) -> impl Future<Output = Result<PruneImagesResponse, ApiError>> + Send;
}

/// The service.
#[derive(Clone)]
pub(crate) struct ImageCalls<N>(pub(crate) N);

impl<N: ImageRegistry + NodeView> ImageCalls<N> {
    /// Answers a call, and counts it.
    async fn answer<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<Response<T>, Status> {
        let begun = Instant::now();
        let answer = call.await.map_err(Status::from);
        let code = answer.as_ref().err().map_or(Code::Ok, Status::code);
        self.0.count_call(&AnsweredCall {
            method,
            code: match code {
                Code::Ok => String::from("OK"),
                code => format!("{code:?}"),
            },
            took: begun.elapsed(),
        });
        answer.map(Response::new)
    }
}

#[tonic::async_trait]
impl<N: ImageRegistry + NodeView> ImageService for ImageCalls<N> {
    type PullImageStream =
        Pin<Box<dyn Stream<Item = Result<PullImageResponse, Status>> + Send + 'static>>;

    async fn list_images(
        &self,
        _: Request<ListImagesRequest>,
    ) -> Result<Response<ListImagesResponse>, Status> {
        self.answer("ListImages", self.0.images()).await
    }

    async fn pull_image(
        &self,
        request: Request<PullImageRequest>,
    ) -> Result<Response<Self::PullImageStream>, Status> {
        let begin = async {
            let permit = Permit::of(&request)?;
            let mut pull = request.get_ref().clone();
            if pull.namespace.is_empty() {
                "default".clone_into(&mut pull.namespace);
            }
            permit.check(&pull.namespace)?;
            // Whether it can be had at all is answered at once.
            let first = self.0.pull_image(&pull).await?;
            let (words, updates) = mpsc::channel(BACKLOG);
            tokio::spawn(follow(self.0.clone(), pull, first, words));
            Ok(Box::pin(ReceiverStream::new(updates)) as Self::PullImageStream)
        };
        self.answer("PullImage", begin).await
    }

    async fn remove_images(
        &self,
        request: Request<RemoveImagesRequest>,
    ) -> Result<Response<RemoveImagesResponse>, Status> {
        let images = request.into_inner().images;
        let removed = async {
            if images.is_empty() || images.len() > MAX_NAMED {
                let text = format!("images: 1 to {MAX_NAMED} digests or names are meant");
                return Err(ApiError::BadRequest(text));
            }
            self.0.remove_images(images).await
        };
        self.answer("RemoveImages", removed).await
    }

    async fn get_image_usage(
        &self,
        _: Request<GetImageUsageRequest>,
    ) -> Result<Response<GetImageUsageResponse>, Status> {
        self.answer("GetImageUsage", self.0.image_usage()).await
    }

    async fn prune_images(
        &self,
        request: Request<PruneImagesRequest>,
    ) -> Result<Response<PruneImagesResponse>, Status> {
        let is_dry = request.get_ref().dry_run;
        self.answer("PruneImages", self.0.prune_images(is_dry))
            .await
    }
}

/// Says how far a pull is until it is done, or nobody listens.
async fn follow<N: ImageRegistry>(
    node: N,
    pull: PullImageRequest,
    first: PullImageResponse,
    words: mpsc::Sender<Result<PullImageResponse, Status>>,
) {
    let mut word = Ok(first);
    loop {
        let is_last = word
            .as_ref()
            .map_or(true, |word: &PullImageResponse| !word.digest.is_empty());
        let said = words.send(word.map_err(Status::from)).await;
        if said.is_err() || is_last {
            return;
        }
        tokio::time::sleep(PAUSE).await;
        word = node.pull_image(&pull).await;
    }
}
