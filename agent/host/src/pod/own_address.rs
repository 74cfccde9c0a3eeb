//! By which family a guest under masquerade can be reached: what comes to its addresses of the pool is sent on to those that it
//! has been offered, and it may have taken one of them alone.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::time::timeout;

use super::namespace::Namespace;
use crate::neighbours::Bridge;

/// How much later than by IPv6 a guest may answer by IPv4 and still be reached by that: more than a guest takes that is asked for
/// the first time, and little beside what a connection may take.
const HEAD_START: Duration = Duration::from_millis(250);

/// Whether a guest answers for the IPv6 address that it has been offered and not for the IPv4 one, by the neighbour table of its
/// VMM's network namespace. It says nothing of what the guest listens on.
pub(crate) async fn speaks_ipv6_alone(
    (namespace, link): (Namespace, &'static str),
    v4: Ipv4Addr,
    v6: Ipv6Addr,
) -> io::Result<bool> {
    let look = async move || {
        // The kernel lists neighbours once at a time for each conversation.
        let taps = (Bridge::open(link).await?, Bridge::open(link).await?);
        compare((&taps.0, v4.into()), (&taps.1, v6.into())).await
    };
    namespace.run(look).await?
}

async fn compare((tap4, v4): (&Bridge, IpAddr), (tap6, v6): (&Bridge, IpAddr)) -> io::Result<bool> {
    let by_ipv4 = pin!(tap4.answers_for(v4));
    let by_ipv6 = pin!(tap6.answers_for(v6));
    match select(by_ipv4, by_ipv6).await {
        Either::Left((answers, by_ipv6)) => Ok(!answers? && by_ipv6.await?),
        Either::Right((answers, by_ipv4)) => {
            if !answers? {
                return Ok(false);
            }
            let late = timeout(HEAD_START, by_ipv4).await;
            late.map_or(Ok(true), |answers| answers.map(|answers| !answers))
        }
    }
}
