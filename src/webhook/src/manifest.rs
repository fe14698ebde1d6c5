//! What only the administrator of a cluster can make: a certificate in a Secret, and the registration of the webhook, which
//! names the authority that has signed it. The authority's own key is thrown away.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use serde_json::{Value, json};

/// Names in the cluster, those of examples/deploy/kubernetes/webhook.
const NAME: &str = "weir-webhook";
/// The label of namespaces whose pods are sent to the webhook.
const LABEL: (&str, &str) = ("weir", "enabled");

/// Arguments of `weir-webhook manifest`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The namespace of the webhook's Service
    #[arg(long, value_name = "NAME", default_value = "weir")]
    namespace: String,
    /// Where the API server reaches the webhook, instead of by its Service
    #[arg(long, value_name = "https://HOST:PORT/mutate")]
    url: Option<String>,
    /// Days until the certificate ends
    #[arg(long, value_name = "N", default_value_t = 3650, value_parser = clap::value_parser!(u16).range(1..=36500))]
    days: u16,
}

/// Both as one list, which `kubectl apply -f -` takes.
pub(crate) fn list(arguments: &Arguments) -> Result<Value, String> {
    let namespace = &arguments.namespace;
    let names = match &arguments.url {
        Some(url) => vec![host(url)?],
        None => vec![format!("{NAME}.{namespace}.svc"), format!("{NAME}.{namespace}.svc.cluster.local")],
    };
    let (authority, certificate, key) = certificate(names, arguments.days).map_err(|error| error.to_string())?;
    let mut client = match &arguments.url {
        Some(url) => json!({"url": url}),
        None => json!({"service": {"name": NAME, "namespace": namespace, "path": "/mutate", "port": 443}}),
    };
    client["caBundle"] = STANDARD.encode(authority).into();
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": NAME, "namespace": namespace},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key)},
    });
    let registration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [{
            "name": "pods.weir-webhook.example",
            "clientConfig": client,
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "Namespaced"}],
            "namespaceSelector": {"matchLabels": {LABEL.0: LABEL.1}},
            // A pod of such a namespace does not start without its limit.
            "failurePolicy": "Fail",
            "reinvocationPolicy": "IfNeeded",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 10,
        }],
    });
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": [secret, registration]}))
}

fn host(url: &str) -> Result<String, String> {
    let rest = url.strip_prefix("https://").ok_or_else(|| format!("--url {url}: expected https://"))?;
    let place = rest.split('/').next().unwrap_or_default();
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host).trim_matches(['[', ']']);
    if host.is_empty() { Err(format!("--url {url}: expected a host")) } else { Ok(host.into()) }
}

/// The authority, a certificate of these names that it has signed, and its key; in PEM.
fn certificate(names: Vec<String>, days: u16) -> Result<(String, String, String), rcgen::Error> {
    let today =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_secs() / 86400);
    let day = |after: u64| {
        let (year, month, day) = civil(today + after);
        rcgen::date_time_ymd(year, month, day)
    };
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.distinguished_name.push(DnType::CommonName, "weir-webhook authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let mut own = CertificateParams::new(names)?;
    own.distinguished_name.push(DnType::CommonName, NAME);
    own.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    own.use_authority_key_identifier_extension = true;
    for params in [&mut authority, &mut own] {
        params.not_before = day(0);
        params.not_after = day(u64::from(days));
    }
    let (authority_key, key) = (KeyPair::generate()?, KeyPair::generate()?);
    let signed = authority.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(authority, authority_key);
    Ok((signed, own.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
}

/// Year, month and day of a number of days since 1970.
fn civil(days: u64) -> (i32, u8, u8) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let place = (5 * of_year + 2) / 153;
    let month = if place < 10 { place + 3 } else { place - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    (year as i32, month as u8, (of_year - (153 * place + 2) / 5 + 1) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        for (days, date) in [(0, (1970, 1, 1)), (59, (1970, 3, 1)), (11_016, (2000, 2, 29)), (20_776, (2026, 11, 19))] {
            assert_eq!(civil(days), date);
        }
    }

    #[test]
    fn a_url_has_a_host() {
        assert_eq!(host("https://127.0.0.1:8443/mutate").as_deref(), Ok("127.0.0.1"));
        assert_eq!(host("https://[::1]:8443/mutate").as_deref(), Ok("::1"));
        assert!(host("http://a/").is_err() && host("https:///x").is_err());
    }
}
