//! The bodies of a call: what of them waits is charged to the caller, and they end when the grant is withdrawn.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Bytes, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Response};

use super::standing::Standing;
use crate::budget::{Call, Charge, MAX_REQUEST_BYTES, SMALL_BYTES};

/// How long a request may take to come as a whole, from the begin of the call or from its own first byte.
const MESSAGE: Duration = if cfg!(test) {
    Duration::from_millis(500)
} else {
    Duration::from_secs(60)
};

/// The header of a message of gRPC: whether it is compressed, and its length.
const HEADER_BYTES: usize = 5;

/// The charge for a large request, which outlives the body: the request is kept until it is answered.
#[derive(Clone, Debug, Default)]
pub(super) struct Large(Arc<Mutex<Option<Charge>>>);

impl Large {
    fn is_charged(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    fn set(&self, charge: Option<Charge>) {
        // What was there is dropped after the lock is free.
        let before = std::mem::replace(
            &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner),
            charge,
        );
        drop(before);
    }
}

/// What a client sends.
pub(super) struct Incoming {
    body: Body,
    call: Arc<Call>,
    standing: Option<Standing>,
    message: Message,
    large: Large,
    deadline: Pin<Box<Sleep>>,
}

impl Incoming {
    pub(super) fn wrap(
        body: Body,
        call: Arc<Call>,
        standing: Option<Standing>,
        large: Large,
    ) -> Body {
        Body::new(Self {
            body,
            call,
            standing,
            message: Message::default(),
            large,
            deadline: Box::pin(sleep_until(Instant::now() + MESSAGE)),
        })
    }

    /// Notes what has come.
    fn take(&mut self, bytes: &[u8]) {
        let was_under_way = self.message.is_under_way();
        let has_ended_one = self.message.take(bytes);
        if !self.message.is_under_way() {
            return;
        }
        if has_ended_one || !was_under_way {
            // The one before was taken by now.
            self.large.set(None);
            self.deadline.as_mut().reset(Instant::now() + MESSAGE);
        }
    }

    /// Whether a message is awaited at all: the first one is, and the rest of one.
    fn is_awaited(&self) -> bool {
        self.message.count == 0 || self.message.is_under_way()
    }
}

impl hyper::body::Body for Incoming {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if let Some(standing) = &mut this.standing
            && let Poll::Ready(error) = standing.poll_withdrawn(context)
        {
            this.body = Body::empty();
            return Poll::Ready(Some(Err(error.into())));
        }
        if this.is_awaited() && this.deadline.as_mut().poll(context).is_ready() {
            this.body = Body::empty();
            let text = format!("the request did not come within {MESSAGE:?}");
            return Poll::Ready(Some(Err(Status::deadline_exceeded(text))));
        }
        if this.message.is_large() && !this.large.is_charged() {
            ready!(this.call.poll_budget(context));
            let charge = this.call.charge(this.message.whole());
            this.large.set(Some(charge));
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
        {
            this.take(bytes);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Progress of a stream of messages.
#[derive(Debug, Default)]
struct Message {
    /// Messages that have come as a whole.
    count: u64,
    /// The length in the header of the next one, as far as it has come.
    header: [u8; HEADER_BYTES],
    /// Bytes of that header and of that message.
    got: usize,
}

impl Message {
    /// Takes bytes, and returns whether a message came to its end.
    fn take(&mut self, mut bytes: &[u8]) -> bool {
        let before = self.count;
        while !bytes.is_empty() {
            if let Some(place) = self
                .header
                .get_mut(self.got..)
                .filter(|rest| !rest.is_empty())
            {
                let taken = place.len().min(bytes.len());
                let (now, later) = bytes.split_at(taken);
                for (to, from) in place.iter_mut().zip(now) {
                    *to = *from;
                }
                (self.got, bytes) = (self.got + taken, later);
            } else {
                let taken = (self.whole() - self.got).min(bytes.len());
                self.got += taken;
                bytes = bytes.get(taken..).unwrap_or_default();
            }
            if self.got >= HEADER_BYTES && self.got >= self.whole() {
                self.count += 1;
                self.got = 0;
            }
        }
        self.count > before
    }

    /// Header and message, once the header is there.
    fn whole(&self) -> usize {
        let [_, length @ ..] = self.header;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        length.saturating_add(HEADER_BYTES)
    }

    /// Whether the message that is under way has to be charged. One that is larger than any that is read ends the call.
    fn is_large(&self) -> bool {
        let sizes = SMALL_BYTES..=MAX_REQUEST_BYTES + HEADER_BYTES;
        self.got >= HEADER_BYTES && sizes.contains(&self.whole())
    }

    fn is_under_way(&self) -> bool {
        self.got > 0
    }
}

/// What a client is sent.
pub(super) struct Outgoing {
    body: Body,
    call: Arc<Call>,
    standing: Option<Standing>,
    /// For an answer that was made as a whole.
    _whole: Option<Arc<Charge>>,
    _request: Large,
}

/// Bytes on their way to a client.
struct Charged {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Outgoing {
    pub(super) fn wrap(
        mut answer: Response<Body>,
        call: Arc<Call>,
        standing: Option<Standing>,
        request: Large,
    ) -> Response<Body> {
        let whole = answer.extensions_mut().remove();
        answer.map(|body| {
            Body::new(Self {
                body,
                call,
                standing,
                _whole: whole,
                _request: request,
            })
        })
    }
}

impl hyper::body::Body for Outgoing {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if let Some(standing) = &mut this.standing
            && let Poll::Ready(error) = standing.poll_withdrawn(context)
        {
            (this.body, this.standing) = (Body::empty(), None);
            let mut trailers = HeaderMap::new();
            Status::from(error).add_header(&mut trailers)?;
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        ready!(this.call.poll_frame(context));
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| {
                frame.map_data(|bytes| {
                    let charge = this.call.charge_frame(bytes.len());
                    Bytes::from_owner(Charged {
                        bytes,
                        _charge: charge,
                    })
                })
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(length: u8) -> Vec<u8> {
        let mut bytes = vec![0, 0, 0, 0, length];
        bytes.resize(HEADER_BYTES + usize::from(length), b'x');
        bytes
    }

    #[test]
    fn requests_are_followed_from_their_header_to_their_end_however_they_are_cut() {
        let sent = [message(3), message(0), message(200)].concat();
        for piece in 1..sent.len() {
            let mut state = Message::default();
            for bytes in sent.chunks(piece) {
                state.take(bytes);
                assert!(state.got < HEADER_BYTES + 200);
            }
            assert_eq!((state.count, state.got), (3, 0), "in pieces of {piece}");
            assert!(!state.take(&message(9)[..13]));
            assert!(state.is_under_way() && !state.is_large());
        }
    }

    #[test]
    fn a_large_request_is_known_by_its_header() {
        let header = |length: u32| [&[0], &length.to_be_bytes()[..]].concat();
        for (length, is_large) in [(1, false), (1 << 20, true), (u32::MAX, false)] {
            let mut state = Message::default();
            state.take(&header(length));
            assert_eq!(state.is_large(), is_large, "{length}");
        }
    }
}
