// Custom resources on standard input, as JSON, held against the schemas of cert-manager and of the
// Prometheus operator, which npm's @kubernetes-models have: an error ends it.
//
//     node custom_schemas.mjs FOLDER-OF-PACKAGES
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const packages = `${process.argv[2]}/@kubernetes-models`;
const load = (path) => import(pathToFileURL(`${packages}/${path}.js`).href);
const { Certificate } = await load("cert-manager/cert-manager.io/v1/Certificate");
const { ServiceMonitor } = await load("prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor");
const KINDS = { Certificate, ServiceMonitor };

for (const document of JSON.parse(readFileSync(0, "utf8"))) {
  const Kind = KINDS[document.kind];
  if (!Kind) throw new Error(`no schema of ${document.kind}`);
  try {
    new Kind(document).validate();
  } catch (error) {
    console.error(`${document.kind} ${document.metadata.name}: ${error.message}`);
    process.exit(1);
  }
}
