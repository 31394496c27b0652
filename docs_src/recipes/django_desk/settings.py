"""The settings of a small Django site: yours has more."""

import os

SECRET_KEY = os.environ.get("SECRET_KEY", "only for development")
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "django_desk.views"
INSTALLED_APPS = ["django_desk"]
JOURNAL = os.environ.get("JOURNAL", "desk.db")
