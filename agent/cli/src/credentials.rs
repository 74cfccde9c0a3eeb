//! `kvmctl credentials`: SSH keys and passwords of users of a VirtualMachine, which its access credentials name by Secrets
//! and the agent in its guest (qemu-guest-agent) sets. Flags, words and rules are those of `virtctl` (v1.7), but for
//! two: there a key of a file that ends in a line break is never found again, and so never removed, and an empty file is taken
//! for every key.

mod keys;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use proto_node::node::{
    CreateObjectRequest, GetObjectRequest, ObjectName, PatchObjectRequest, Preconditions,
};
use serde_json::{Map, Value, json};
use tonic::{Code, Status};

use self::keys::{holds, secrets_with_keys, secrets_with_passwords, without};
use crate::args::{AddSshKey, CredentialsCommand, OfUser, PublicKey, RemoveSshKey, SetPassword};
use crate::client::Client;
use crate::failure::{Failure, is_unreachable, open_error};
use crate::names;
use crate::objects;
use crate::output::print_line;
use crate::scope::Scope;
use crate::text::text;

const MACHINE: &str = "VirtualMachine";
const GUEST: &str = "VirtualMachineInstance";
const SECRET: &str = "Secret";

/// What a key is called within a Secret: this and so many letters.
const MEMBER: &str = "ssh-key-";
const LETTERS: usize = 6;

const OF_MACHINE: &str = "error getting virtual machine";

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

    /// An object, or why there is none.
    async fn get(&mut self, doing: &str, kind: &str, name: &str) -> Result<Value, Failure> {
        let found = self.find(doing, kind, name).await?;
        found.ok_or_else(|| {
            let resource = match kind {
                SECRET => "secrets",
                _ => "virtualmachines.kubevirt.io",
            };
            refused(doing, &format!("{resource} {name:?} not found"))
        })
    }

    /// An object, if it is there.
    async fn find(
        &mut self,
        doing: &str,
        kind: &str,
        name: &str,
    ) -> Result<Option<Value>, Failure> {
        let request = GetObjectRequest {
            name: self.id(kind, name),
            ..GetObjectRequest::default()
        };
        match self.client.objects().get_object(request).await {
            Ok(answer) => objects::json::read(&answer.into_inner().object).map(Some),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(self.failure(doing, &status)),
        }
    }

    /// What the agent answered, behind what was being done.
    fn failure(&self, doing: &str, status: &Status) -> Failure {
        if is_unreachable(status) {
            return Failure::of_status(status, "", "", self.client.address());
        }
        refused(doing, status.message())
    }

    /// Changes an object by what `change` says of it as it is; again, should somebody else have changed it meanwhile.
    async fn change(
        &mut self,
        doing: &str,
        (kind, name): (&str, &str),
        change: impl Fn(&Value) -> Result<Option<Value>, Failure>,
    ) -> Result<(), Failure> {
        let mut attempts = 0..ATTEMPTS;
        loop {
            let object = self.get(doing, kind, name).await?;
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
                Err(status) => return Err(self.failure(doing, &status)),
            }
        }
    }
}

async fn add_key(mut node: Node, args: &AddSshKey) -> Result<(), Failure> {
    check_exclusive(&[
        ("create-secret", args.create_secret),
        ("update-secret", args.update_secret),
    ])?;
    let key = read_key(&args.key)?;
    let whose = &args.whose;
    let machine = node.get(OF_MACHINE, MACHINE, &whose.vm).await?;
    let secrets = secrets_with_keys(&machine, &whose.user);
    let creates = args.create_secret || (secrets.is_empty() && !args.update_secret);
    if creates {
        return create_secret(node, &machine, whose, &key).await;
    }
    if secrets.is_empty() {
        let text = format!("no secrets specified for user: {}", whose.user);
        return Err(Failure::Refused(text));
    }
    let secret = chosen(whose, &secrets)?;
    let stored = node.get(&of_secret(secret), SECRET, secret).await?;
    if holds(&stored, &key) {
        return print_line(&format!(
            "Secret \"{secret}\" already contains this SSH key."
        ));
    }
    check_owner(&stored, &machine, whose.force)?;
    let member = names::random_of(MEMBER, LETTERS)?;
    node.change(&patching(secret), (SECRET, secret), |_| {
        Ok(Some(json!({"data": { &member: encoded(key.as_bytes()) }})))
    })
    .await?;
    print_line(&format!(
        "Successfully added the key to secret \"{secret}\""
    ))
}

/// Makes a Secret with the key, which goes with the machine, and names it there. Says nothing, as `virtctl`.
async fn create_secret(
    mut node: Node,
    machine: &Value,
    whose: &OfUser,
    key: &str,
) -> Result<(), Failure> {
    const DOING: &str = "error when getting virtual machine instance";
    let vm = &whose.vm;
    if !whose.force && node.find(DOING, GUEST, vm).await?.is_some() {
        return Err(Failure::Refused(format!(
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
        "data": { names::random_of(MEMBER, LETTERS)?: encoded(key.as_bytes()) },
    });
    let request = CreateObjectRequest {
        object: secret.to_string().into_bytes(),
        field_manager: String::from("kvmctl-credentials"),
        ..CreateObjectRequest::default()
    };
    let created = node.client.objects().create_object(request).await;
    let created = created.map_err(|status| node.failure("error creating secret", &status))?;
    let secret = text(
        &objects::json::read(&created.into_inner().object)?,
        "/metadata/name",
    );
    let credential = json!({"sshPublicKey": {
        "source": {"secret": {"secretName": secret}},
        "propagationMethod": {"qemuGuestAgent": {"users": [whose.user]}},
    }});
    let doing = "error patching virtual machine";
    node.change(doing, (MACHINE, vm), |machine| {
        let mut all = keys::credentials(machine).to_vec();
        all.push(credential.clone());
        let spec = json!({"spec": {"template": {"spec": {"accessCredentials": all}}}});
        Ok(Some(spec))
    })
    .await
}

async fn remove_key(mut node: Node, args: &RemoveSshKey) -> Result<(), Failure> {
    let key = read_key(&args.key)?;
    let whose = &args.whose;
    let machine = node.get(OF_MACHINE, MACHINE, &whose.vm).await?;
    let mut secrets = secrets_with_keys(&machine, &whose.user);
    if secrets.is_empty() {
        return print_line(&format!("No secrets associated with user {}", whose.user));
    }
    if let Some(wanted) = whose.secret() {
        secrets.retain(|secret| secret == wanted);
        secrets.truncate(1);
        if secrets.is_empty() {
            return Err(Failure::Refused(format!(
                "secret {wanted} is not associated with user {}",
                whose.user
            )));
        }
    }
    for secret in secrets {
        if node.find("", SECRET, &secret).await?.is_none() {
            continue;
        }
        node.change("", (SECRET, &secret), |stored| {
            check_owner(stored, &machine, whose.force)?;
            Ok(without(stored, &key).map(|data| json!({ "data": data })))
        })
        .await?;
    }
    Ok(())
}

async fn set_password(mut node: Node, args: &SetPassword) -> Result<(), Failure> {
    let whose = &args.whose;
    let machine = node.get(OF_MACHINE, MACHINE, &whose.vm).await?;
    let secrets = secrets_with_passwords(&machine);
    if secrets.is_empty() {
        let text = "no secrets assigned to UserPassword AccessCredentials";
        return Err(Failure::Refused(text.to_owned()));
    }
    let secret = chosen(whose, &secrets)?;
    if !whose.force {
        node.get(&of_secret(secret), SECRET, secret).await?;
    }
    node.change(&patching(secret), (SECRET, secret), |stored| {
        check_owner(stored, &machine, whose.force)?;
        let mut data = Map::new();
        data.insert(whose.user.clone(), encoded(args.password.as_bytes()));
        Ok(Some(json!({ "data": data })))
    })
    .await?;
    print_line(&format!("Successfully set password in secret \"{secret}\""))
}

/// A failure, behind the step that failed, where there is one.
fn refused(doing: &str, why: &str) -> Failure {
    Failure::Refused(if doing.is_empty() {
        why.to_owned()
    } else {
        format!("{doing}: {why}")
    })
}

fn of_secret(name: &str) -> String {
    format!("error getting secret \"{name}\"")
}

fn patching(secret: &str) -> String {
    format!("error patching secret \"{secret}\"")
}

/// Refuses flags that exclude each other; they are in the order of the alphabet.
fn check_exclusive(flags: &[(&str, bool)]) -> Result<(), Failure> {
    if !flags.iter().all(|(_, is_set)| *is_set) {
        return Ok(());
    }
    let names: Vec<&str> = flags.iter().map(|(name, _)| *name).collect();
    let names = names.join(" ");
    Err(Failure::Refused(format!(
        "if any flags in the group [{names}] are set none of the others can be; [{names}] were all set"
    )))
}

fn read_key(key: &PublicKey) -> Result<String, Failure> {
    const DOING: &str = "error getting ssh key";
    let (file, value) = (key.file.as_deref(), key.value.as_deref());
    check_exclusive(&[("file", file.is_some()), ("value", value.is_some())])?;
    let is_given = |text: &&str| !text.is_empty();
    match (value.filter(is_given), file.filter(is_given)) {
        (Some(value), _) => Ok(value.to_owned()),
        (None, Some(file)) => {
            let read = std::fs::read_to_string(file);
            let key = read.map_err(|error| refused(DOING, &open_error(file, &error)))?;
            if key.trim().is_empty() {
                return Err(refused(DOING, &format!("{file} is empty")));
            }
            Ok(key)
        }
        (None, None) => Err(refused(
            DOING,
            "one of --file, or --value must be specified",
        )),
    }
}

/// The Secret that is meant of those that the machine names, of which there is one at least.
fn chosen<'a>(whose: &'a OfUser, secrets: &'a [String]) -> Result<&'a str, Failure> {
    match (whose.secret(), secrets) {
        (None, [only]) => Ok(only),
        (None, _) => Err(Failure::Refused(
            "multiple secrets specified, use option --secret to specify which secret to modify"
                .to_owned(),
        )),
        (Some(wanted), secrets) if secrets.iter().any(|secret| secret == wanted) => Ok(wanted),
        (Some(wanted), _) => Err(Failure::Refused(format!(
            "secret {wanted} was not assigned"
        ))),
    }
}

/// A Secret that the machine does not own may be one of several machines.
fn check_owner(secret: &Value, machine: &Value, force: bool) -> Result<(), Failure> {
    let owners = secret.pointer("/metadata/ownerReferences");
    let mut owners = owners.and_then(Value::as_array).into_iter().flatten();
    let own = |path: &str| text(machine, path);
    let (name, uid) = (own("/metadata/name"), own("/metadata/uid"));
    let owns = |owner: &Value| {
        let of = |path: &str| text(owner, path);
        of("/kind") == MACHINE && of("/name") == name && of("/uid") == uid
    };
    if force || owners.any(owns) {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "secret {} does not have an owner reference pointing to VM {name}",
        text(secret, "/metadata/name")
    )))
}

fn encoded(bytes: &[u8]) -> Value {
    BASE64_STANDARD.encode(bytes).into()
}
