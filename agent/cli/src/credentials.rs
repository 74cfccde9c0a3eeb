//! `kvmctl credentials`: SSH keys and passwords of users of a VirtualMachine, which its access credentials name by Secrets
//! and the agent in its guest (qemu-guest-agent) sets. Flags, words and rules are those of `virtctl` (v1.7).

mod keys;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use proto_node::node::{
    CreateObjectRequest, GetObjectRequest, ObjectName, PatchObjectRequest, Preconditions,
};
use serde_json::{Map, Value, json};
use tonic::Code;

use self::keys::{holds, secrets_with_keys, secrets_with_passwords, without};
use crate::args::{AddSshKey, CredentialsCommand, OfUser, PublicKey, RemoveSshKey, SetPassword};
use crate::client::Client;
use crate::failure::Failure;
use crate::objects;
use crate::output::print_line;
use crate::scope::Scope;
use crate::text::text;

const MACHINE: &str = "VirtualMachine";
const GUEST: &str = "VirtualMachineInstance";
const SECRET: &str = "Secret";

/// Writes that came between reading an object and patching it: so often it is tried again.
const ATTEMPTS: usize = 5;

/// `kvmctl credentials`.
pub async fn run(scope: &Scope, command: &CredentialsCommand) -> Result<(), Failure> {
    let node = Node {
        client: Client::new(scope)?,
        namespace: scope.namespace().to_owned(),
    };
    match command {
        CredentialsCommand::AddSshKey(args) => add_key(node, args).await,
        CredentialsCommand::RemoveSshKey(args) => remove_key(node, args).await,
        CredentialsCommand::SetPassword(args) => set_password(node, args).await,
    }
}

/// Objects of a namespace.
struct Node {
    client: Client,
    namespace: String,
}

impl Node {
    fn id(&self, kind: &str, name: &str) -> Option<ObjectName> {
        Some(ObjectName {
            kind: kind.to_owned(),
            namespace: self.namespace.clone(),
            name: name.to_owned(),
        })
    }

    /// An object, if it is there.
    async fn find(&mut self, kind: &str, name: &str) -> Result<Option<Value>, Failure> {
        let request = GetObjectRequest {
            name: self.id(kind, name),
        };
        match self.client.objects().get_object(request).await {
            Ok(answer) => objects::json::read(&answer.into_inner().object).map(Some),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(Failure::of_status(
                &status,
                kind,
                name,
                self.client.address(),
            )),
        }
    }

    async fn get(&mut self, kind: &str, name: &str) -> Result<Value, Failure> {
        let found = self.find(kind, name).await?;
        found.ok_or_else(|| Failure::refused(format!("{kind} {name:?} not found")))
    }

    /// Changes an object by what `change` says of it as it is; again, should somebody else have changed it meanwhile.
    async fn change(
        &mut self,
        (kind, name): (&str, &str),
        change: impl Fn(&Value) -> Result<Option<Value>, Failure>,
    ) -> Result<(), Failure> {
        let mut attempts = 0..ATTEMPTS;
        loop {
            let object = self.get(kind, name).await?;
            let Some(patch) = change(&object)? else {
                return Ok(());
            };
            let request = PatchObjectRequest {
                name: self.id(kind, name),
                merge_patch: patch.to_string().into_bytes(),
                preconditions: Some(Preconditions {
                    uid: text(&object, "/metadata/uid"),
                    resource_version: text(&object, "/metadata/resourceVersion"),
                }),
                field_manager: String::from("kvmctl-credentials"),
                ..PatchObjectRequest::default()
            };
            attempts.next();
            match self.client.objects().patch_object(request).await {
                Ok(_) => return Ok(()),
                Err(status) if status.code() == Code::Aborted && !attempts.is_empty() => {}
                Err(status) => {
                    let address = self.client.address();
                    return Err(Failure::of_status(&status, kind, name, address));
                }
            }
        }
    }
}

async fn add_key(mut node: Node, args: &AddSshKey) -> Result<(), Failure> {
    let key = read_key(&args.key)?;
    let whose = &args.whose;
    let machine = node.get(MACHINE, &whose.vm).await?;
    let secrets = secrets_with_keys(&machine, &whose.user);
    let creates = args.create_secret || (secrets.is_empty() && !args.update_secret);
    if creates {
        return create_secret(node, &machine, whose, &key).await;
    }
    if secrets.is_empty() {
        let text = format!("no secrets specified for user: {}", whose.user);
        return Err(Failure::refused(text));
    }
    let secret = chosen(whose.secret.as_deref(), &secrets)?;
    let stored = node.get(SECRET, secret).await?;
    if holds(&stored, &key) {
        return print_line(&format!(
            "Secret \"{secret}\" already contains this SSH key."
        ));
    }
    check_owner(&stored, &machine, whose.force)?;
    let member = member_name()?;
    node.change((SECRET, secret), |_| {
        Ok(Some(json!({"data": { &member: encoded(key.as_bytes()) }})))
    })
    .await?;
    print_line(&format!(
        "Successfully added the key to secret \"{secret}\""
    ))
}

/// Makes a Secret with the key, which goes with the machine, and names it there.
async fn create_secret(
    mut node: Node,
    machine: &Value,
    whose: &OfUser,
    key: &str,
) -> Result<(), Failure> {
    let vm = &whose.vm;
    if !whose.force && node.find(GUEST, vm).await?.is_some() {
        return Err(Failure::refused(format!(
            "virtual machine {vm} is running. Use --force flag to update a running VM, it will take effect after \
             restart"
        )));
    }
    let secret = json!({
        "apiVersion": "v1",
        "kind": SECRET,
        "metadata": {
            "generateName": format!("{vm}-ssh-key-"),
            "namespace": node.namespace,
            "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1",
                "kind": MACHINE,
                "name": vm,
                "uid": text(machine, "/metadata/uid"),
                "controller": true,
            }],
        },
        "data": { member_name()?: encoded(key.as_bytes()) },
    });
    let request = CreateObjectRequest {
        object: secret.to_string().into_bytes(),
        field_manager: String::from("kvmctl-credentials"),
        ..CreateObjectRequest::default()
    };
    let created = node.client.objects().create_object(request).await;
    let created =
        created.map_err(|status| Failure::of_status(&status, SECRET, vm, node.client.address()))?;
    let secret = text(
        &objects::json::read(&created.into_inner().object)?,
        "/metadata/name",
    );
    let credential = json!({"sshPublicKey": {
        "source": {"secret": {"secretName": secret}},
        "propagationMethod": {"qemuGuestAgent": {"users": [whose.user]}},
    }});
    let named = node
        .change((MACHINE, vm), |machine| {
            let mut all = keys::credentials(machine).to_vec();
            all.push(credential.clone());
            let spec = json!({"spec": {"template": {"spec": {"accessCredentials": all}}}});
            Ok(Some(spec))
        })
        .await;
    named?;
    print_line(&format!(
        "Successfully added the key to secret \"{secret}\""
    ))
}

async fn remove_key(mut node: Node, args: &RemoveSshKey) -> Result<(), Failure> {
    let key = read_key(&args.key)?;
    let whose = &args.whose;
    let machine = node.get(MACHINE, &whose.vm).await?;
    let mut secrets = secrets_with_keys(&machine, &whose.user);
    if secrets.is_empty() {
        return print_line(&format!("No secrets associated with user {}", whose.user));
    }
    if let Some(wanted) = &whose.secret {
        secrets.retain(|secret| secret == wanted);
        if secrets.is_empty() {
            return Err(Failure::refused(format!(
                "secret {wanted} is not associated with user {}",
                whose.user
            )));
        }
    }
    for secret in secrets {
        if node.find(SECRET, &secret).await?.is_none() {
            continue;
        }
        node.change((SECRET, &secret), |stored| {
            check_owner(stored, &machine, whose.force)?;
            Ok(without(stored, &key).map(|data| json!({ "data": data })))
        })
        .await?;
    }
    Ok(())
}

async fn set_password(mut node: Node, args: &SetPassword) -> Result<(), Failure> {
    let whose = &args.whose;
    let machine = node.get(MACHINE, &whose.vm).await?;
    let secrets = secrets_with_passwords(&machine);
    if secrets.is_empty() {
        let text = "no secrets assigned to UserPassword AccessCredentials";
        return Err(Failure::refused(text));
    }
    let secret = chosen(whose.secret.as_deref(), &secrets)?;
    node.change((SECRET, secret), |stored| {
        check_owner(stored, &machine, whose.force)?;
        let mut data = Map::new();
        data.insert(whose.user.clone(), encoded(args.password.as_bytes()));
        Ok(Some(json!({ "data": data })))
    })
    .await?;
    print_line(&format!("Successfully set password in secret \"{secret}\""))
}

fn read_key(key: &PublicKey) -> Result<String, Failure> {
    match (&key.value, &key.file) {
        (Some(value), _) => Ok(value.clone()),
        (None, Some(file)) => std::fs::read_to_string(file)
            .map_err(|error| Failure::Unreadable(format!("{}: {error}", file.display()))),
        (None, None) => Err(Failure::Usage(
            "one of --file, or --value must be specified".to_owned(),
        )),
    }
}

/// The Secret that is meant of those that the machine names, of which there is one at least.
fn chosen<'a>(wanted: Option<&'a str>, secrets: &'a [String]) -> Result<&'a str, Failure> {
    match (wanted, secrets) {
        (None, [only]) => Ok(only),
        (None, _) => Err(Failure::refused(
            "multiple secrets specified, use option --secret to specify which secret to modify",
        )),
        (Some(wanted), secrets) if secrets.iter().any(|secret| secret == wanted) => Ok(wanted),
        (Some(wanted), _) => Err(Failure::refused(format!(
            "secret {wanted} was not assigned"
        ))),
    }
}

/// A Secret that the machine does not own may be one of several machines.
fn check_owner(secret: &Value, machine: &Value, force: bool) -> Result<(), Failure> {
    let owners = secret.pointer("/metadata/ownerReferences");
    let mut owners = owners.and_then(Value::as_array).into_iter().flatten();
    let uid = text(machine, "/metadata/uid");
    let owns = |owner: &Value| text(owner, "/kind") == MACHINE && text(owner, "/uid") == uid;
    if force || owners.any(owns) {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "secret {} does not have an owner reference pointing to VM {}",
        text(secret, "/metadata/name"),
        text(machine, "/metadata/name")
    )))
}

/// A name for a key within a Secret that no other has.
fn member_name() -> Result<String, Failure> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::refused(format!("no random numbers: {error}")))?;
    Ok(format!("ssh-key-{:08x}", u32::from_le_bytes(bytes)))
}

fn encoded(bytes: &[u8]) -> Value {
    BASE64_STANDARD.encode(bytes).into()
}
