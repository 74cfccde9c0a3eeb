//! What an agent in a guest says to the requests of qemu-guest-agent's protocol that the node makes, as far as a guest
//! without processes can.

/// The longest request and answer.
pub const MAX_LINE_BYTES: usize = 1024;

/// Answer to `guest-get-osinfo`.
const OS: &[u8] =
    b"{\"return\": {\"id\": \"testguest\", \"pretty-name\": \"A guest for tests\"}}\n";

/// Interfaces that it has not.
const INTERFACES: &[u8] = b"{\"return\": [{\"name\": \"lo\"}, {\"name\": \"vpn0\", \
      \"ip-addresses\": [{\"ip-address\": \"192.0.2.7\"}]}]}\n";

/// An agent that answers a number of requests and no more.
#[derive(Debug)]
pub struct GuestAgent {
    /// Answers that are left besides greetings; nothing: no end.
    left: Option<u64>,
    /// Exit code of the last command.
    exit_code: u8,
}

impl GuestAgent {
    /// One that falls silent after so many answers; 0 for never.
    pub fn new(answers: u64) -> Self {
        Self {
            left: (answers > 0).then_some(answers),
            exit_code: 0,
        }
    }

    /// Writes the answer to a request into `answer`; how long it is, if there is one. Greetings are answered until
    /// the last other answer was given.
    pub fn answer(&mut self, request: &[u8], answer: &mut [u8; MAX_LINE_BYTES]) -> Option<usize> {
        if self.left == Some(0) {
            return None;
        }
        let has = |word: &[u8]| request.windows(word.len()).any(|part| part == word);
        let mut text = Text {
            bytes: answer,
            length: 0,
        };
        if has(b"\"guest-sync-delimited\"") {
            text.add(b"\xff{\"return\": ");
            text.add(digits_after(request, b"\"id\":"));
            text.add(b"}\n");
            return Some(text.length);
        }
        // What is asked now and then by itself is not counted.
        if has(b"\"guest-get-osinfo\"") {
            text.add(OS);
            return Some(text.length);
        }
        if has(b"\"guest-network-get-interfaces\"") {
            text.add(INTERFACES);
            return Some(text.length);
        }
        // Nobody of another name is at home.
        let is_root = has(b"\"username\":\"root\"");
        if has(b"\"guest-ping\"") {
            text.add(b"{\"return\": {}}\n");
        } else if has(b"\"guest-exec\"") {
            self.exit_code = u8::from(!has(b"\"path\":\"true\""));
            text.add(b"{\"return\": {\"pid\": 7}}\n");
            // What follows belongs to it.
            return Some(text.length);
        } else if has(b"\"guest-exec-status\"") {
            text.add(b"{\"return\": {\"exited\": true, \"exitcode\": ");
            text.add(&[b'0' + self.exit_code]);
            // "not today".
            text.add(b", \"out-data\": \"bm90IHRvZGF5Cg==\"}}\n");
        } else if is_root
            && (has(b"\"guest-ssh-add-authorized-keys\"") || has(b"\"guest-set-user-password\""))
        {
            text.add(b"{\"return\": {}}\n");
        } else {
            text.add(b"{\"error\": {\"class\": \"CommandNotFound\", \"desc\": \"testguest has no such command\"}}\n");
        }
        self.left = self.left.map(|left| left - 1);
        Some(text.length)
    }
}

/// Bytes one after the other; what does not fit is cut.
struct Text<'a> {
    bytes: &'a mut [u8; MAX_LINE_BYTES],
    length: usize,
}

impl Text<'_> {
    fn add(&mut self, part: &[u8]) {
        for byte in part {
            if let Some(place) = self.bytes.get_mut(self.length) {
                *place = *byte;
                self.length += 1;
            }
        }
    }
}

fn digits_after<'a>(text: &'a [u8], word: &[u8]) -> &'a [u8] {
    let at = text.windows(word.len()).position(|part| part == word);
    let rest = at.and_then(|at| text.get(at + word.len()..));
    let rest = rest.unwrap_or_default();
    let end = rest.iter().position(|byte| !byte.is_ascii_digit());
    rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(agent: &mut GuestAgent, request: &str) -> Option<String> {
        let mut answer = [0; MAX_LINE_BYTES];
        let length = agent.answer(request.as_bytes(), &mut answer)?;
        Some(String::from_utf8_lossy(&answer[..length]).into_owned())
    }

    #[test]
    fn requests_are_answered_until_the_answers_run_out() {
        let mut agent = GuestAgent::new(2);
        let greeting = r#"{"execute":"guest-sync-delimited","arguments":{"id":4711}}"#;
        assert_eq!(
            said(&mut agent, greeting).unwrap(),
            "\u{fffd}{\"return\": 4711}\n"
        );
        let exec = r#"{"execute":"guest-exec","arguments":{"path":"false","arg":[]}}"#;
        assert!(said(&mut agent, exec).unwrap().contains("\"pid\": 7"));
        let status = r#"{"execute":"guest-exec-status","arguments":{"pid":7}}"#;
        assert!(
            said(&mut agent, status)
                .unwrap()
                .contains("\"exitcode\": 1,")
        );
        let other = r#"{"execute":"guest-fstrim"}"#;
        assert!(said(&mut agent, other).unwrap().starts_with("{\"error\""));
        assert_eq!(said(&mut agent, greeting), None);
    }
}
