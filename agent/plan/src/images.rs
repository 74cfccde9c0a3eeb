//! Events of images, in the words of a kubelet (`pkg/kubelet/images` of Kubernetes).

use crate::action::Failure;
use crate::condition::{EventKind, PlanEvent};
use crate::time::Millis;

/// Reason of an operation that pulls an image.
pub(crate) const PULLING: &str = "Pulling";

/// Reason of an attempt to pull an image that failed.
const FAILED: &str = "ErrImagePull";

/// Reason while the next attempt is waited for.
const BACKS_OFF: &str = "ImagePullBackOff";

/// Reason where the pull policy forbids a pull.
const NEVER: &str = "ErrImageNeverPull";

/// A step on the way of an image to the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageEvent {
    /// The VMI waits for a pull.
    Pulling {
        /// As the spec names it.
        image: String,
    },
    /// The pull that it waited for succeeded.
    Pulled {
        /// As the spec names it.
        image: String,
        /// How long the pull took.
        took: Millis,
        /// How long the VMI waited for it.
        waited: Millis,
        /// Size of the layers; 0 when it is not known.
        bytes: u64,
    },
    /// The disk of the image was there.
    Present {
        /// As the spec names it.
        image: String,
    },
}

impl ImageEvent {
    /// The kubelet's event.
    #[must_use]
    pub fn event(&self) -> PlanEvent {
        match self {
            Self::Pulling { image } => normal(PULLING, format!("Pulling image {image:?}")),
            Self::Pulled {
                image,
                took,
                waited,
                bytes,
            } => {
                let (took, waited) = (seconds(*took), seconds(*waited));
                let size = match bytes {
                    0 => String::new(),
                    bytes => format!(" Image size: {bytes} bytes."),
                };
                let message = format!(
                    "Successfully pulled image {image:?} in {took} ({waited} including waiting).{size}"
                );
                normal("Pulled", message)
            }
            Self::Present { image } => normal(
                "Pulled",
                format!("Container image {image:?} already present on machine"),
            ),
        }
    }
}

/// The events of a failure that has to do with an image. Its reason remains that of the condition.
pub(crate) fn failed(failure: &Failure) -> Option<Vec<PlanEvent>> {
    let (reason, message) = (failure.reason.as_str(), failure.message.as_str());
    let first = match reason {
        FAILED => warning("Failed", message.to_owned()),
        NEVER => warning(NEVER, message.to_owned()),
        BACKS_OFF => {
            // What went wrong was an event of its own, and repeats of this one are to count as the same.
            let image = message.split_once("\": ").map(|(before, _)| before);
            let message = image.map_or(message.to_owned(), |image| format!("{image}\""));
            normal("BackOff", message)
        }
        _ => return None,
    };
    Some(vec![first, warning("Failed", format!("Error: {reason}"))])
}

/// As Go prints a duration of whole milliseconds: `850ms`, `3.2s`, `1m2s`, `1h0m0.5s`.
fn seconds(span: Millis) -> String {
    let millis = span.0.max(0);
    if millis < 1000 {
        return match millis {
            0 => String::from("0s"),
            millis => format!("{millis}ms"),
        };
    }
    let fraction = format!("{:03}", millis % 1000);
    let fraction = match fraction.trim_end_matches('0') {
        "" => String::new(),
        digits => format!(".{digits}"),
    };
    let (hours, minutes, seconds) = (millis / 3_600_000, millis / 60_000 % 60, millis / 1000 % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}{fraction}s"),
        (0, minutes) => format!("{minutes}m{seconds}{fraction}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

fn normal(reason: &str, message: String) -> PlanEvent {
    event(EventKind::Normal, reason, message)
}

fn warning(reason: &str, message: String) -> PlanEvent {
    event(EventKind::Warning, reason, message)
}

fn event(kind: EventKind, reason: &str, message: String) -> PlanEvent {
    PlanEvent {
        kind,
        reason: reason.to_owned(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::FailureClass;

    fn said(event: &PlanEvent) -> String {
        format!(
            "{} {}: {}",
            event.kind.as_str(),
            event.reason,
            event.message
        )
    }

    #[test]
    fn a_pull_has_the_events_of_a_kubelet() {
        let image = String::from("r/debian:12");
        let pulled = |took, bytes| ImageEvent::Pulled {
            image: image.clone(),
            took: Millis(took),
            waited: Millis(took + 50),
            bytes,
        };
        for (news, expected) in [
            (
                ImageEvent::Pulling {
                    image: image.clone(),
                },
                "Normal Pulling: Pulling image \"r/debian:12\"",
            ),
            (
                pulled(3200, 1000),
                "Normal Pulled: Successfully pulled image \"r/debian:12\" in 3.2s (3.25s including waiting). \
                 Image size: 1000 bytes.",
            ),
            (
                pulled(62_000, 0),
                "Normal Pulled: Successfully pulled image \"r/debian:12\" in 1m2s (1m2.05s including waiting).",
            ),
            (
                pulled(0, 1),
                "Normal Pulled: Successfully pulled image \"r/debian:12\" in 0s (50ms including waiting). Image size: 1 bytes.",
            ),
            (
                ImageEvent::Present {
                    image: image.clone(),
                },
                "Normal Pulled: Container image \"r/debian:12\" already present on machine",
            ),
        ] {
            assert_eq!(said(&news.event()), expected);
        }
    }

    #[test]
    fn a_failed_pull_and_its_pause_are_events_of_a_kubelet() {
        let events = |reason: &str, message: &str| {
            let failure = Failure {
                class: FailureClass::Pending,
                reason: reason.to_owned(),
                message: message.to_owned(),
            };
            failed(&failure).map(|events| events.iter().map(said).collect::<Vec<_>>())
        };
        let pull = "Failed to pull image \"a:1\": no route";
        assert_eq!(
            events("ErrImagePull", pull).unwrap(),
            [
                "Warning Failed: Failed to pull image \"a:1\": no route",
                "Warning Failed: Error: ErrImagePull"
            ]
        );
        let pause = "Back-off pulling image \"a:1\": GET \"x\": no route";
        assert_eq!(
            events("ImagePullBackOff", pause).unwrap(),
            [
                "Normal BackOff: Back-off pulling image \"a:1\"",
                "Warning Failed: Error: ImagePullBackOff"
            ]
        );
        assert_eq!(
            events("ErrImageNeverPull", "absent").unwrap(),
            [
                "Warning ErrImageNeverPull: absent",
                "Warning Failed: Error: ErrImageNeverPull"
            ]
        );
        assert_eq!(events("FailedMount", "x"), None);
    }
}
