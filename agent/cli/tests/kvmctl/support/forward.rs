//! A guest that sends back what it is sent, in capitals, and ends when no more follows. Its port 1 takes no
//! connection, and its port 2 ends first.

use proto_node::node::{
    PortForwardEnd, PortForwardOpened, PortForwardRequest, PortForwardResponse,
    port_forward_request::Body as Asked, port_forward_response::Body as Answer,
};
use proto_node::{FailureReason, failure};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::Agent;

type Responses = mpsc::Receiver<Result<PortForwardResponse, Status>>;

impl Agent {
    pub(super) async fn forward(
        &self,
        mut requests: Streaming<PortForwardRequest>,
    ) -> Result<Responses, Status> {
        let first = requests.message().await?.and_then(|first| first.body);
        let Some(Asked::Open(open)) = first else {
            return Err(failure(FailureReason::BadRequest, "open first"));
        };
        let request = format!(
            "forward {} {} {}/{}",
            open.namespace, open.name, open.protocol, open.port
        );
        self.store.lock().unwrap().requests.push(request);
        if open.port == 1 {
            let text = "dial tcp 10.0.0.2:1: Connection refused";
            return Err(failure(FailureReason::ServiceUnavailable, text));
        }
        let (out, responses) = mpsc::channel(2);
        tokio::spawn(async move {
            let send = async |body| out.send(Ok(PortForwardResponse { body: Some(body) })).await;
            let mut bodies = vec![Answer::Opened(PortForwardOpened::default())];
            if open.port == 2 {
                bodies.push(Answer::Data(b"bye".to_vec()));
                bodies.push(Answer::End(PortForwardEnd {}));
            }
            loop {
                for body in bodies.drain(..) {
                    if send(body).await.is_err() {
                        return;
                    }
                }
                match requests.message().await {
                    Ok(Some(PortForwardRequest {
                        body: Some(Asked::Data(bytes)),
                    })) if open.port != 2 => bodies.push(Answer::Data(bytes.to_ascii_uppercase())),
                    Ok(Some(PortForwardRequest {
                        body: Some(Asked::End(_)),
                    })) => {
                        if open.port != 2 {
                            drop(send(Answer::End(PortForwardEnd {})).await);
                        }
                        return;
                    }
                    Ok(Some(_)) => {}
                    _ => return,
                }
            }
        });
        Ok(responses)
    }
}
