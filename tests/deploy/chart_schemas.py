"""Documents of Kubernetes on standard input, held against its schemas: an error ends it.

    python chart_schemas.py 1.30

Runs in the environment with kubernetes-validate. Prints, as JSON, how many documents there are, and
those whose kinds are not Kubernetes' own.
"""

import json
import sys
from importlib import import_module

kubernetes_validate, yaml = map(import_module, ("kubernetes_validate", "yaml"))
documents = [one for one in yaml.safe_load_all(sys.stdin) if one]
unknown = []
for document in documents:
    name = f"{document['kind']} {document['metadata']['name']}"
    try:
        kubernetes_validate.validate(document, sys.argv[1], strict=True)
    except kubernetes_validate.SchemaNotFoundError:
        unknown.append(document)
    except kubernetes_validate.ValidationError as error:
        sys.exit(f"{name}: {error.path} {error.message}")
json.dump({"documents": len(documents), "others": unknown}, sys.stdout)
